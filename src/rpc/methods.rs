//! The methods: from a call to what the instance is asked, and from its word to a result.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

use super::{
    api::{Instance, Refusal, Subscription, Topic},
    message::{RpcError, code},
};

/// The names of all methods, as `docs/rpc.schema.json` has them.
pub const ALL: [&str; 9] = [
    "Lifecycle.Status",
    "Lifecycle.Drain",
    "Lifecycle.Reload",
    "Worker.Status",
    "Worker.Restart",
    "Lease.Status",
    "Reading.Latest",
    "Reading.Subscribe",
    "Event.Subscribe",
];

/// What a method gives: its result and, for `*.Subscribe`, the stream to start once the result has been sent.
pub struct Done {
    /// The result.
    pub result: Value,
    /// The stream.
    pub subscription: Option<Subscription>,
}

impl From<Value> for Done {
    fn from(result: Value) -> Self {
        Self { result, subscription: None }
    }
}

/// So many bytes has a name at most: subscriptions and calls in hand keep it.
const MAX_NAME: usize = 256;

/// The name of a worker or a station.
#[derive(Debug)]
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name.len() > MAX_NAME {
            return Err(serde::de::Error::custom(format!("a name has at most {MAX_NAME} bytes")));
        }
        Ok(Self(name))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct None_ {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForStation {
    #[serde(default)]
    station: Option<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForWorker {
    #[serde(default)]
    key: Option<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Restart {
    key: Name,
    #[serde(default)]
    station: Option<Name>,
}

/// Runs one method. The caller sets the deadline.
///
/// # Errors
/// What to answer instead of a result.
pub async fn run(instance: &dyn Instance, method: &str, params: Option<Box<RawValue>>) -> Result<Done, RpcError> {
    match method {
        "Lifecycle.Status" => {
            let None_ {} = take(params)?;
            Ok(to_value(&instance.status())?.into())
        }
        "Lifecycle.Drain" => {
            let None_ {} = take(params)?;
            instance.drain().await?;
            Ok(json!({ "draining": true }).into())
        }
        "Lifecycle.Reload" => {
            let None_ {} = take(params)?;
            Ok(to_value(&instance.reload().await?)?.into())
        }
        "Worker.Status" => worker_status(instance, take(params)?),
        "Worker.Restart" => {
            let Restart { key: Name(key), station } = take(params)?;
            let station = station.map(|s| s.0);
            instance.restart_worker(&key, station.as_deref()).await?;
            Ok(json!({ "key": key, "station": station }).into())
        }
        "Lease.Status" => {
            let None_ {} = take(params)?;
            Ok(instance.lease().into())
        }
        "Reading.Latest" => {
            let ForStation { station } = take(params)?;
            Ok(json!({ "readings": to_value(&instance.latest(station.as_ref().map(|s| s.0.as_str()))?)? }).into())
        }
        "Reading.Subscribe" => {
            let ForStation { station } = take(params)?;
            let subscription = instance.subscribe(Topic::Readings { station: station.map(|s| s.0) })?;
            Ok(Done { result: json!({ "subscribed": "Reading" }), subscription: Some(subscription) })
        }
        "Event.Subscribe" => {
            let None_ {} = take(params)?;
            let subscription = instance.subscribe(Topic::Events)?;
            Ok(Done { result: json!({ "subscribed": "Event" }), subscription: Some(subscription) })
        }
        other => {
            // The name is the caller's: bounded before it goes into an answer.
            let name: String = other.chars().take(64).collect();
            Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method \"{name}\"")))
        }
    }
}

fn worker_status(instance: &dyn Instance, wanted: ForWorker) -> Result<Done, RpcError> {
    let mut workers = instance.status().workers;
    if let Some(Name(key)) = wanted.key {
        workers.retain(|w| w.key == key);
        if workers.is_empty() {
            return Err(Refusal::Unknown { kind: "worker".into(), name: key }.into());
        }
    }
    Ok(json!({ "workers": to_value(&workers)? }).into())
}

/// Parameters go by name; nothing, `{}` and `[]` are the same. Read as they came, without a tree in between.
fn take<T: DeserializeOwned>(params: Option<Box<RawValue>>) -> Result<T, RpcError> {
    let text = params.as_ref().map_or("{}", |p| p.get());
    let text = match text.strip_prefix('[') {
        None => text,
        Some(rest) if rest.trim_ascii() == "]" => "{}",
        Some(_) => return Err(RpcError::new(code::INVALID_PARAMS, "parameters go by name: use an object")),
    };
    serde_json::from_str(text).map_err(|e| {
        // A name that is not known stands in it, and it is the caller's.
        let why: String = e.to_string().chars().take(MAX_NAME).collect();
        RpcError::new(code::INVALID_PARAMS, why)
    })
}

fn to_value<T: serde::Serialize>(result: &T) -> Result<Value, RpcError> {
    serde_json::to_value(result).map_err(|e| RpcError::new(code::INTERNAL, format!("the result has no JSON form: {e}")))
}
