//! JSON-RPC 2.0 messages: what came in, and what goes out. Pure.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{
    Deserialize, Serialize,
    de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

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
#[derive(Debug, Clone)]
pub struct Call {
    /// What to answer to.
    pub id: Option<Id>,
    /// The method.
    pub method: String,
    /// An object, an array, or nothing; as text, since a tree of it may take forty times its length.
    pub params: Option<Box<RawValue>>,
}

/// What a frame held. A call that is none comes with its answer.
#[derive(Debug, Clone)]
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

/// The answers of a batch, as the frame that they become: bounded, since a caller may ask for the longest one
/// [`MAX_BATCH`] times.
#[derive(Debug, Default)]
pub struct BatchAnswer(Vec<u8>);

impl BatchAnswer {
    /// When it has so many bytes, no more of the batch is carried out.
    pub const MAX: usize = 4 << 20;

    /// Adds an answer.
    pub fn push(&mut self, answer: Answer) {
        self.0.push(if self.0.is_empty() { b'[' } else { b',' });
        self.0.extend_from_slice(answer.into_value().to_string().as_bytes());
    }

    /// What to answer to a call for which there is no room any more.
    #[must_use]
    pub fn refusal(&self) -> Option<RpcError> {
        let limit = Self::MAX as u64;
        (self.0.len() >= Self::MAX)
            .then(|| Refusal::TooMany { what: "bytes of a batch's answers".into(), limit }.into())
    }

    /// The frame; `None` when there are no answers, since then nothing is sent at all.
    #[must_use]
    pub fn into_frame(mut self) -> Option<Bytes> {
        if self.0.is_empty() {
            return None;
        }
        self.0.extend_from_slice(b"]\n");
        Some(self.0.into())
    }
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
///
/// A frame is passed over as text and never becomes a tree, and a batch is read up to its bound only: whatever a frame
/// holds, it takes no more memory than about its own length.
#[must_use]
pub fn parse(frame: &[u8]) -> Incoming {
    match std::str::from_utf8(frame) {
        Ok(text) if text.trim_ascii_start().starts_with('[') => batch(text),
        Ok(text) => match serde_json::from_str::<&RawValue>(text) {
            Ok(one) => Incoming::Single(call(one)),
            Err(e) => no_json(&e),
        },
        Err(e) => no_json(&e),
    }
}

fn no_json(why: &dyn std::error::Error) -> Incoming {
    Incoming::Single(Err(Box::new(Answer::refuse(Id::NULL, code::PARSE, format!("no JSON: {why}")))))
}

fn batch(text: &str) -> Incoming {
    let mut elements = Elements { found: Vec::new(), full: false };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_seq(&mut elements).and_then(|()| json.end());
    match read {
        _ if elements.full => {
            Incoming::Single(Err(invalid(Id::NULL, format!("a batch holds at most {MAX_BATCH} calls"))))
        }
        Err(e) => no_json(&e),
        Ok(()) if elements.found.is_empty() => Incoming::Single(Err(invalid(Id::NULL, "the batch is empty"))),
        Ok(()) => Incoming::Batch(elements.found.into_iter().map(call).collect()),
    }
}

/// The elements of an array, at most [`MAX_BATCH`].
struct Elements<'a> {
    found: Vec<&'a RawValue>,
    /// There are more; reading stopped there.
    full: bool,
}

impl<'a> Visitor<'a> for &mut Elements<'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(one) = all.next_element()? {
            if self.found.len() == MAX_BATCH {
                self.full = true;
                return Err(A::Error::custom("too many"));
            }
            self.found.push(one);
        }
        Ok(())
    }
}

/// The members of a request; of one that comes twice, the last.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
}

/// A key, borrowed where it can be.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Visitor<'a> for Members<'a> {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            match &*key {
                "jsonrpc" => self.jsonrpc = Some(map.next_value()?),
                "id" => self.id = Some(map.next_value()?),
                "method" => self.method = Some(map.next_value()?),
                "params" => self.params = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(self)
    }
}

fn invalid(id: Id, message: impl Into<String>) -> Box<Answer> {
    Box::new(Answer::refuse(id, code::INVALID_REQUEST, message))
}

fn call(raw: &RawValue) -> Result<Call, Box<Answer>> {
    if !raw.get().starts_with('{') {
        return Err(invalid(Id::NULL, "a request is an object"));
    }
    let members = serde_json::Deserializer::from_str(raw.get()).deserialize_map(Members::default());
    let members = members.map_err(|e| invalid(Id::NULL, format!("no request: {e}")))?;
    let id = members.id.map(take_id).transpose()?;
    let refuse = |message: &str| Err(invalid(id.clone().unwrap_or(Id::NULL), message));
    let text = |raw: Option<&RawValue>| raw.and_then(|r| serde_json::from_str::<String>(r.get()).ok());
    if text(members.jsonrpc).as_deref() != Some("2.0") {
        return refuse("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = text(members.method) else {
        return refuse("`method` must be a string");
    };
    let params = match members.params {
        None => None,
        Some(params) if params.get().starts_with(['{', '[']) => Some(params.to_owned()),
        Some(_) => return refuse("`params` must be an object or an array"),
    };
    Ok(Call { id, method, params })
}

fn take_id(raw: &RawValue) -> Result<Id, Box<Answer>> {
    // Looked at before it is read: an object or an array would become a tree.
    let scalar = !raw.get().starts_with(['{', '[']);
    let id = scalar.then(|| serde_json::from_str(raw.get()).ok()).flatten().and_then(Id::new);
    id.ok_or_else(|| invalid(Id::NULL, "`id` must be a string, a number or null"))
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
        let closed = format!("{deep}{}", "]".repeat(100_000));
        let Incoming::Batch(one) = parse(closed.as_bytes()) else { panic!("an array of one") };
        assert!(one[0].is_err());
    }

    #[test]
    fn a_batch_past_its_bound_is_read_no_further_and_no_frame_becomes_a_tree() {
        // What follows the bound is no JSON, and nobody finds out.
        let frame = format!("[{}garbage", "1,".repeat(MAX_BATCH + 1));
        assert_eq!(code_of(&frame).0, code::INVALID_REQUEST);
        let params = format!("[{}1]", "1,".repeat(1000));
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{params},"id":1,"more":{params}}}"#);
        let Incoming::Single(Ok(call)) = parse(frame.as_bytes()) else { panic!() };
        assert_eq!(call.params.unwrap().get(), params, "as it came");
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"x","id":{params}}}"#);
        assert_eq!(code_of(&frame).0, code::INVALID_REQUEST);
    }

    #[test]
    fn the_last_of_two_members_of_one_name_counts() {
        let frame = r#" {"id":1,"method":"a","jsonrpc":"2.0","method":"b","\u0069d":2} "#;
        let Incoming::Single(Ok(call)) = parse(frame.as_bytes()) else { panic!() };
        assert_eq!((call.method.as_str(), call.id), ("b", Some(Id::from(2))));
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
