//! A Redis of a test's own, and the script in it: as it is, and with a clock that the test sets.

use redis::{Cmd, Connection, cmd};
use weir::algorithm;
use weir_sim::root::Acquire;
use weir_stack::{RedisOptions, Scratch};

/// What is added to each expiry under a set clock, so that the real clock expires nothing meanwhile.
pub const KEPT_MS: u64 = 3_600_000;

/// Around the script's text stands a `redis` of ours, which is all it can reach: it takes the time from the last
/// two arguments, and returns the words of each call beside the reply. Numbers become words as Redis makes them.
const BEFORE: &str = "local function script(redis)\n";
const AFTER: &str = r"
end
local usec, sec = table.remove(ARGV), table.remove(ARGV)
local answer = {}
local function call(...)
  local words = {...}
  for i, word in ipairs(words) do
    if type(word) == 'number' then words[i] = string.format('%.17g', word) end
  end
  answer[#answer + 1] = table.concat(words, ' ')
  if words[1] == 'TIME' then return {sec, usec} end
  if words[1] == 'SET' then words[5] = string.format('%.17g', words[5] + KEPT_MS) end
  return redis.call(unpack(words))
end
local reply = script({call = call, pcall = call})
if reply.err then return reply end
table.insert(answer, 1, reply)
return answer
";

/// A private Redis.
pub struct Redis {
    redis: weir_stack::Redis,
    _scratch: Scratch,
}

impl Redis {
    pub fn start() -> Redis {
        let scratch = Scratch::new().expect("a folder for Redis");
        let redis = weir_stack::Redis::start(&scratch, RedisOptions::default()).expect("a Redis");
        Redis { redis, _scratch: scratch }
    }

    pub fn connect(&self) -> Connection {
        self.redis.operator().expect("Redis serves")
    }
}

/// A script that Redis has loaded, by its name.
pub struct Script(pub String);

impl Script {
    /// The file as it is.
    pub fn plain(connection: &mut Connection) -> Script {
        Script::load(connection, &algorithm::TOKEN_BUCKET.text())
    }

    /// The file with a clock that each call sets.
    pub fn clocked(connection: &mut Connection) -> Script {
        Script::clocked_text(connection, &algorithm::TOKEN_BUCKET.text())
    }

    /// Any script with a clock that each call sets.
    pub fn clocked_text(connection: &mut Connection, text: &str) -> Script {
        let after = AFTER.replace("KEPT_MS", &KEPT_MS.to_string());
        Script::load(connection, &format!("{BEFORE}{text}{after}"))
    }

    pub fn load(connection: &mut Connection, text: &str) -> Script {
        let loaded = cmd("SCRIPT").arg("LOAD").arg(text).query(connection);
        Script(loaded.expect("Redis takes the script"))
    }

    pub fn call(&self, key: &str, call: &Acquire) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.0).arg(1).arg(key).arg(call.to_args());
        command
    }

    /// For [`Script::clocked`]: the two numbers that TIME answers come last.
    pub fn call_at(&self, clock_us: u64, key: &str, call: &Acquire) -> Cmd {
        let mut command = self.call(key, call);
        command.arg(clock_us / 1_000_000).arg(clock_us % 1_000_000);
        command
    }
}
