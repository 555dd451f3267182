//! The methods: from a call to what the instance is asked, and from its word to a result.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct None_ {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForStation {
    #[serde(default)]
    station: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForWorker {
    #[serde(default)]
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Restart {
    key: String,
    #[serde(default)]
    station: Option<String>,
}

/// Runs one method. The caller sets the deadline.
///
/// # Errors
/// What to answer instead of a result.
pub async fn run(instance: &dyn Instance, method: &str, params: Option<Value>) -> Result<Done, RpcError> {
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
            let Restart { key, station } = take(params)?;
            instance.restart_worker(&key, station.as_deref()).await?;
            Ok(json!({ "key": key, "station": station }).into())
        }
        "Lease.Status" => {
            let None_ {} = take(params)?;
            Ok(instance.lease().into())
        }
        "Reading.Latest" => {
            let ForStation { station } = take(params)?;
            Ok(json!({ "readings": to_value(&instance.latest(station.as_deref())?)? }).into())
        }
        "Reading.Subscribe" => {
            let ForStation { station } = take(params)?;
            let subscription = instance.subscribe(Topic::Readings { station })?;
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
    if let Some(key) = wanted.key {
        workers.retain(|w| w.key == key);
        if workers.is_empty() {
            return Err(Refusal::Unknown { kind: "worker".into(), name: key }.into());
        }
    }
    Ok(json!({ "workers": to_value(&workers)? }).into())
}

/// Parameters go by name; nothing, `{}` and `[]` are the same.
fn take<T: DeserializeOwned>(params: Option<Value>) -> Result<T, RpcError> {
    let params = match params {
        None => json!({}),
        Some(Value::Array(list)) if list.is_empty() => json!({}),
        Some(Value::Array(_)) => {
            return Err(RpcError::new(code::INVALID_PARAMS, "parameters go by name: use an object"));
        }
        Some(params) => params,
    };
    serde_json::from_value(params).map_err(|e| RpcError::new(code::INVALID_PARAMS, e.to_string()))
}

fn to_value<T: serde::Serialize>(result: &T) -> Result<Value, RpcError> {
    serde_json::to_value(result).map_err(|e| RpcError::new(code::INTERNAL, format!("the result has no JSON form: {e}")))
}
