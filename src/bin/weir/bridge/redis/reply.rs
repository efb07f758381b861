//! What a reply of Redis says, and what it proves.

use redis::{ServerError, Value};
use weir::limiter::Failure;

use super::Address;

/// A reply to a script.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// What it answered.
    Numbers(Vec<i64>),
    /// It failed, or may have run.
    Failed(Failure),
    /// It has not run: the node does not know it.
    NoScript,
    /// It has not run: the slot is at another node.
    Moved(Address),
    /// It has not run: the key may be at another node, which is to be asked this once.
    Ask(Address),
    /// It has not run: the slot is being moved.
    TryAgain,
}

/// Reads the reply of the node at `from`, which may leave its own host out.
pub fn read(value: Value, from: &Address) -> Reply {
    match value {
        Value::ServerError(error) => of_error(&error, from),
        Value::Array(items) => match items.as_slice() {
            [Value::Int(_), Value::BulkString(text)] if text.starts_with(b"WEIR ") => Reply::Failed(Failure::BadKey),
            items => {
                let number = |item: &Value| match item {
                    Value::Int(number) => Some(*number),
                    _ => None,
                };
                let numbers: Option<Vec<i64>> = items.iter().map(number).collect();
                numbers.map_or(Reply::Failed(Failure::Redis), Reply::Numbers)
            }
        },
        _ => Reply::Failed(Failure::Redis),
    }
}

fn of_error(error: &ServerError, from: &Address) -> Reply {
    // `MOVED 3999 127.0.0.1:6381`: the detail is what stands behind the first word.
    let place = || {
        let text = error.details()?.split(' ').nth(1)?;
        let text = if text.starts_with(':') { format!("{}{text}", from.host) } else { text.to_owned() };
        Address::read(&text).or_else(|| unbracketed(&text))
    };
    match error.code() {
        "NOSCRIPT" => Reply::NoScript,
        "TRYAGAIN" => Reply::TryAgain,
        "MOVED" => place().map_or(Reply::Failed(Failure::Redis), Reply::Moved),
        "ASK" => place().map_or(Reply::Failed(Failure::Redis), Reply::Ask),
        code => Reply::Failed(failure(code)),
    }
}

/// Redis writes an address of IPv6 without brackets.
fn unbracketed(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Address::read(&format!("[{host}]:{port}"))
}

/// The reason that an error's first word is.
pub fn failure(code: &str) -> Failure {
    match code {
        "CLUSTERDOWN" => Failure::ClusterDown,
        "READONLY" => Failure::ReadOnly,
        "LOADING" => Failure::Loading,
        "OOM" => Failure::OutOfMemory,
        "NOPERM" => Failure::NoPermission,
        "NOAUTH" | "WRONGPASS" => Failure::NoAuth,
        "TRYAGAIN" => Failure::TryAgain,
        "MASTERDOWN" => Failure::MasterDown,
        "CROSSSLOT" => Failure::CrossSlot,
        "BUSY" => Failure::Busy,
        _ => Failure::Redis,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap_or_default()
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn each_error_has_its_meaning() {
        let failed = Reply::Failed;
        let table = [
            ("MOVED 3999 127.0.0.1:6381", Reply::Moved(at("127.0.0.1", 6381))),
            ("MOVED 3999 :6381", Reply::Moved(at("here", 6381))),
            ("MOVED 3999 redis-2.internal:6381", Reply::Moved(at("redis-2.internal", 6381))),
            ("MOVED 3999 fd00::1:6381", Reply::Moved(at("fd00::1", 6381))),
            ("MOVED 3999", failed(Failure::Redis)),
            ("MOVED 3999 127.0.0.1:0", failed(Failure::Redis)),
            ("ASK 3999 127.0.0.1:6381", Reply::Ask(at("127.0.0.1", 6381))),
            ("NOSCRIPT No matching script. Please use EVAL.", Reply::NoScript),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Reply::TryAgain),
            ("CLUSTERDOWN Hash slot not served", failed(Failure::ClusterDown)),
            ("READONLY You can't write against a read only replica.", failed(Failure::ReadOnly)),
            ("LOADING Redis is loading the dataset in memory", failed(Failure::Loading)),
            ("OOM command not allowed when used memory > 'maxmemory'.", failed(Failure::OutOfMemory)),
            ("NOPERM this user has no permissions to run the 'evalsha' command", failed(Failure::NoPermission)),
            ("NOAUTH Authentication required.", failed(Failure::NoAuth)),
            ("WRONGPASS invalid username-password pair or user is disabled.", failed(Failure::NoAuth)),
            ("MASTERDOWN Link with MASTER is down", failed(Failure::MasterDown)),
            ("CROSSSLOT Keys in request don't hash to the same slot", failed(Failure::CrossSlot)),
            ("BUSY Redis is busy running a script.", failed(Failure::Busy)),
            ("MISCONF Redis is configured to save RDB snapshots", failed(Failure::Redis)),
            ("ERR unknown command", failed(Failure::Redis)),
        ];
        for (line, wanted) in table {
            assert_eq!(read(error(line), &at("here", 1)), wanted, "{line}");
        }
    }

    #[test]
    fn a_script_answers_with_integers_or_of_its_key() {
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let list = Value::Array;
        let table = [
            (list(vec![Value::Int(1), Value::Int(-2)]), Reply::Numbers(vec![1, -2])),
            (list(vec![]), Reply::Numbers(vec![])),
            (list(vec![Value::Int(1), bytes("WEIR the key holds no token bucket")]), Reply::Failed(Failure::BadKey)),
            (list(vec![Value::Int(1), bytes("1")]), Reply::Failed(Failure::Redis)),
            (list(vec![Value::Int(1), Value::Nil]), Reply::Failed(Failure::Redis)),
            (Value::Int(1), Reply::Failed(Failure::Redis)),
            (Value::Nil, Reply::Failed(Failure::Redis)),
        ];
        for (value, wanted) in table {
            assert_eq!(read(value.clone(), &at("here", 1)), wanted, "{value:?}");
        }
    }
}
