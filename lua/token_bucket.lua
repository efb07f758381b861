-- acquire: grants the costs of those who wait at one token bucket, in order, each whole or not at all.
--
-- KEYS[1]  the bucket
-- ARGV     requests, period_ms, burst           the limit: so many requests per period, at most burst at once
--          then for each run: cost, count       count requests in a row that cost the same
-- reply    level, reset_ms, granted...          level in units, ms until the bucket is full, how many of each run
--                                               were granted (the first ones of the run)
-- errors   WEIR ...                             the key holds something that this script did not write
--
-- Numbers are doubles that only ever hold integers below 2^53, so they are exact. A unit is 1/period_ms of a
-- token: each millisecond adds `requests` units and a token is `period_ms` units. The caller guarantees
-- burst * period_ms < 2^53 and 1 <= cost <= burst.
--
-- The value is the level and its time (ms), two little-endian doubles. No key means a full bucket. Redis TIME is
-- the only clock; one that goes back adds nothing.

local requests, period_ms, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local capacity = burst * period_ms

-- math.fmod is exact; the % of Lua 5.1 rounds a quotient and is not.
local function floor_div(a, b) return (a - math.fmod(a, b)) / b end
local function ceil_div(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

local function exact(a) return a >= 0 and a < 2^53 and math.fmod(a, 1) == 0 end -- false for NaN

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000 + floor_div(tonumber(time[2]), 1000)

local level, now = capacity, clock
local value = redis.call('GET', KEYS[1])
if value then
  local last
  if #value == 16 then level, last = struct.unpack('<dd', value) end
  if not (last and exact(level) and exact(last)) then
    return redis.error_reply('WEIR the key holds no token bucket')
  end
  now = math.max(clock, last)
  -- From the time to full on, the bucket is full: this also keeps the product below capacity.
  if now - last >= ceil_div(capacity, requests) then
    level = capacity
  else
    level = math.min(capacity, level + (now - last) * requests)
  end
end

local reply = {0, 0}
for run = 4, #ARGV, 2 do
  local cost, count = tonumber(ARGV[run]) * period_ms, tonumber(ARGV[run + 1])
  local granted = math.min(count, floor_div(level, cost))
  level = level - granted * cost
  reply[#reply + 1] = granted
end

local reset_ms = ceil_div(capacity - level, requests)
reply[1], reply[2] = level, reset_ms
-- A second longer than the time to full; a clock that went back has that way to go first.
redis.call('SET', KEYS[1], struct.pack('<dd', level, now), 'PX', (now - clock) + reset_ms + 1000)
return reply
