//! JSON-RPC 2.0 messages: what came in, and what goes out. Pure.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::api::{Refusal, ReloadError};

/// A request's id: a string, a number or null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Id(Value);

impl Id {
    /// The id of an answer to what had none that could be read.
    pub const NULL: Self = Self(Value::Null);

    /// `None` when the value is no id.
    #[must_use]
    pub fn new(value: Value) -> Option<Self> {
        match value {
            Value::Null | Value::Number(_) | Value::String(_) => Some(Self(value)),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl From<u64> for Id {
    fn from(n: u64) -> Self {
        Self(n.into())
    }
}

/// One call. Without an id it is a notification, which is never answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What to answer to.
    pub id: Option<Id>,
    /// The method.
    pub method: String,
    /// An object, an array, or nothing.
    pub params: Option<Value>,
}

/// What a frame held. A call that is none comes with its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// One call.
    Single(Result<Call, Box<Answer>>),
    /// Several, answered together. Never empty.
    Batch(Vec<Result<Call, Box<Answer>>>),
}

/// So many calls fit a batch.
pub const MAX_BATCH: usize = 64;

/// Error codes, JSON-RPC's and our own.
pub mod code {
    /// No JSON.
    pub const PARSE: i64 = -32700;
    /// JSON, but no request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method does not take these parameters.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A defect of the server.
    pub const INTERNAL: i64 = -32603;
    /// Only the leader can; `data.leader` names it or is null.
    pub const NOT_LEADER: i64 = -32001;
    /// On its way out.
    pub const DRAINING: i64 = -32002;
    /// Something is in hand that must not be interrupted; `data.what`.
    pub const BUSY: i64 = -32003;
    /// Nothing of that name; `data.kind`, `data.name`.
    pub const UNKNOWN: i64 = -32004;
    /// A bound was reached; `data.what`, `data.limit`.
    pub const TOO_MANY: i64 = -32005;
    /// It was tried and did not work.
    pub const FAILED: i64 = -32006;
    /// This peer may not.
    pub const FORBIDDEN: i64 = -32007;
    /// The server's deadline for a request passed.
    pub const DEADLINE: i64 = -32008;
    /// The manifest has faults; `data.faults`, `data.more`.
    pub const MANIFEST: i64 = -32010;
}

/// An error object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// See [`code`].
    pub code: i64,
    /// In words.
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    fn with(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The refusal that this is, for a client.
    #[must_use]
    pub fn as_refusal(&self) -> Option<Refusal> {
        let text = |key: &str| self.data.as_ref().and_then(|d| d.get(key)).and_then(Value::as_str).map(str::to_owned);
        match self.code {
            code::NOT_LEADER => Some(Refusal::NotLeader { leader: text("leader") }),
            code::DRAINING => Some(Refusal::Draining),
            code::BUSY => Some(Refusal::Busy { what: text("what").unwrap_or_default() }),
            code::UNKNOWN => Some(Refusal::Unknown {
                kind: text("kind").unwrap_or_default(),
                name: text("name").unwrap_or_default(),
            }),
            code::TOO_MANY => {
                let limit = self.data.as_ref().and_then(|d| d.get("limit")).and_then(Value::as_u64).unwrap_or_default();
                Some(Refusal::TooMany { what: text("what").unwrap_or_default(), limit })
            }
            code::FAILED => Some(Refusal::Failed { why: self.message.clone() }),
            _ => None,
        }
    }
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::NotLeader { leader } => Self::new(code::NOT_LEADER, message).with(json!({ "leader": leader })),
            Refusal::Draining => Self::new(code::DRAINING, message),
            Refusal::Busy { what } => Self::new(code::BUSY, message).with(json!({ "what": what })),
            Refusal::Unknown { kind, name } => {
                Self::new(code::UNKNOWN, message).with(json!({ "kind": kind, "name": name }))
            }
            Refusal::TooMany { what, limit } => {
                Self::new(code::TOO_MANY, message).with(json!({ "what": what, "limit": limit }))
            }
            Refusal::Failed { why: _ } => Self::new(code::FAILED, message),
        }
    }
}

impl From<ReloadError> for RpcError {
    fn from(error: ReloadError) -> Self {
        let message = error.to_string();
        match error {
            ReloadError::Manifest { faults, more } => {
                Self::new(code::MANIFEST, message).with(json!({ "faults": faults, "more": more }))
            }
            ReloadError::Refused(refusal) => refusal.into(),
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The call's id.
    pub id: Id,
    /// What came of it.
    pub outcome: Result<Value, RpcError>,
}

impl Answer {
    /// An answer to what is no call.
    #[must_use]
    pub fn refuse(id: Id, code: i64, message: impl Into<String>) -> Self {
        Self { id, outcome: Err(RpcError::new(code, message)) }
    }

    fn into_value(self) -> Value {
        match self.outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "result": result, "id": self.id.0 }),
            Err(error) => json!({ "jsonrpc": "2.0", "error": error, "id": self.id.0 }),
        }
    }

    /// The frame, line feed included.
    #[must_use]
    pub fn into_frame(self) -> Bytes {
        line(&self.into_value())
    }
}

/// The frame of a batch's answers; `None` when there are none, since then nothing is sent at all.
#[must_use]
pub fn batch_frame(answers: Vec<Answer>) -> Option<Bytes> {
    if answers.is_empty() {
        return None;
    }
    Some(line(&Value::Array(answers.into_iter().map(Answer::into_value).collect())))
}

/// The frame of a notification of the server.
#[must_use]
pub fn notification(method: &str, params: &Value) -> Bytes {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

/// The frame of a request.
#[must_use]
pub fn request(id: u64, method: &str, params: &Value) -> Bytes {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": id }))
}

fn line(value: &Value) -> Bytes {
    let mut text = value.to_string().into_bytes();
    text.push(b'\n');
    text.into()
}

/// Reads a frame. Never fails: what is wrong becomes the answer to send.
#[must_use]
pub fn parse(frame: &[u8]) -> Incoming {
    let value = match serde_json::from_slice::<Value>(frame) {
        Ok(value) => value,
        Err(e) => {
            return Incoming::Single(Err(Box::new(Answer::refuse(Id::NULL, code::PARSE, format!("no JSON: {e}")))));
        }
    };
    match value {
        Value::Array(calls) if calls.is_empty() => Incoming::Single(Err(invalid(Id::NULL, "the batch is empty"))),
        Value::Array(calls) if calls.len() > MAX_BATCH => {
            Incoming::Single(Err(invalid(Id::NULL, format!("a batch holds at most {MAX_BATCH} calls"))))
        }
        Value::Array(calls) => Incoming::Batch(calls.into_iter().map(call).collect()),
        other => Incoming::Single(call(other)),
    }
}

fn invalid(id: Id, message: impl Into<String>) -> Box<Answer> {
    Box::new(Answer::refuse(id, code::INVALID_REQUEST, message))
}

fn call(value: Value) -> Result<Call, Box<Answer>> {
    let Value::Object(mut object) = value else { return Err(invalid(Id::NULL, "a request is an object")) };
    let id = take_id(&mut object)?;
    let refuse = |message: &str| Err(invalid(id.clone().unwrap_or(Id::NULL), message));
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return refuse("`jsonrpc` must be \"2.0\"");
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return refuse("`method` must be a string");
    };
    let params = match object.remove("params") {
        None => None,
        Some(params @ (Value::Object(_) | Value::Array(_))) => Some(params),
        Some(_) => return refuse("`params` must be an object or an array"),
    };
    Ok(Call { id, method, params })
}

fn take_id(object: &mut Map<String, Value>) -> Result<Option<Id>, Box<Answer>> {
    match object.remove("id") {
        None => Ok(None),
        Some(value) => match Id::new(value) {
            Some(id) => Ok(Some(id)),
            None => Err(invalid(Id::NULL, "`id` must be a string, a number or null")),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code_of(frame: &str) -> (i64, Value) {
        match parse(frame.as_bytes()) {
            Incoming::Single(Err(answer)) => (answer.outcome.unwrap_err().code, answer.id.0),
            other => panic!("{frame}: {other:?}"),
        }
    }

    #[test]
    fn what_is_no_request_gets_the_code_of_the_standard() {
        for (frame, code, id) in [
            ("{", code::PARSE, Value::Null),
            ("", code::PARSE, Value::Null),
            ("{} {}", code::PARSE, Value::Null),
            ("[]", code::INVALID_REQUEST, Value::Null),
            ("1", code::INVALID_REQUEST, Value::Null),
            ("null", code::INVALID_REQUEST, Value::Null),
            (r#"{"jsonrpc":"2.0","id":1}"#, code::INVALID_REQUEST, json!(1)),
            (r#"{"jsonrpc":"1.0","method":"x","id":"a"}"#, code::INVALID_REQUEST, json!("a")),
            (r#"{"jsonrpc":"2.0","method":1,"id":2}"#, code::INVALID_REQUEST, json!(2)),
            (r#"{"jsonrpc":"2.0","method":"x","params":1,"id":3}"#, code::INVALID_REQUEST, json!(3)),
            (r#"{"jsonrpc":"2.0","method":"x","id":{}}"#, code::INVALID_REQUEST, Value::Null),
        ] {
            assert_eq!(code_of(frame), (code, id), "{frame}");
        }
        let huge = format!("[{}]", vec!["1"; MAX_BATCH + 1].join(","));
        assert_eq!(code_of(&huge).0, code::INVALID_REQUEST);
        let deep = "[".repeat(100_000);
        assert_eq!(code_of(&deep).0, code::PARSE);
    }

    #[test]
    fn ids_of_every_kind_come_back_as_they_were() {
        for id in [r#""a""#, "0", "-7", "1.5", "18446744073709551615", "null"] {
            let frame = format!(r#"{{"jsonrpc":"2.0","method":"x","id":{id}}}"#);
            let Incoming::Single(Ok(call)) = parse(frame.as_bytes()) else { panic!("{frame}") };
            let answer = Answer { id: call.id.unwrap(), outcome: Ok(json!(true)) }.into_frame();
            assert_eq!(&answer[..], format!("{{\"jsonrpc\":\"2.0\",\"result\":true,\"id\":{id}}}\n").as_bytes());
        }
        let Incoming::Single(Ok(call)) = parse(br#"{"jsonrpc":"2.0","method":"x"}"#) else { panic!() };
        assert_eq!(call.id, None, "no id: a notification");
    }

    #[test]
    fn refusals_survive_the_way_through_an_error_object() {
        for refusal in [
            Refusal::NotLeader { leader: Some("b".into()) },
            Refusal::NotLeader { leader: None },
            Refusal::Draining,
            Refusal::Busy { what: "upgrade".into() },
            Refusal::Unknown { kind: "worker".into(), name: "x".into() },
            Refusal::TooMany { what: "subscribers".into(), limit: 32 },
            Refusal::Failed { why: "no".into() },
        ] {
            assert_eq!(RpcError::from(refusal.clone()).as_refusal(), Some(refusal));
        }
        assert_eq!(RpcError::new(code::INTERNAL, "x").as_refusal(), None);
    }

    proptest! {
        #[test]
        fn no_frame_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
