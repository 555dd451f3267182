//! Holds messages against `docs/rpc.schema.json`: a validator of the keywords that the schema uses, which refuses others.

use std::sync::OnceLock;

use serde_json::{Map, Value};

fn document() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        serde_json::from_str(include_str!("../../../docs/rpc.schema.json")).expect("the schema is JSON")
    })
}

/// Panics when a message of the server breaks the schema.
pub fn check_message(message: &Value) {
    let root = document().as_object().unwrap();
    let any: Map<String, Value> = [("anyOf".to_owned(), root["anyOf"].clone())].into_iter().collect();
    assert_holds(&Value::Object(any), message);
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        check_as(root["notifications"][method].as_str().expect("a known notification"), &message["params"]);
    }
}

/// Panics when an answer is not what the schema says of the method: its result, or one of its error codes.
pub fn check_answer(method: &str, answer: &Value) {
    check_message(answer);
    let of = &document()["methods"][method];
    assert!(of.is_object(), "{method} is not in the schema");
    if let Some(result) = answer.get("result") {
        check_as(of["result"].as_str().unwrap(), result);
    } else {
        let code = answer["error"]["code"].as_i64().unwrap();
        let general = [-32602, -32603, -32008].contains(&code);
        let own = of["errors"].as_array().unwrap().iter().any(|c| c.as_i64() == Some(code));
        assert!(general || own, "{method} may not answer {code}");
    }
}

/// The names of all methods in the schema.
pub fn methods() -> Vec<&'static str> {
    document()["methods"].as_object().unwrap().keys().map(String::as_str).collect()
}

/// Panics when the value is not what the definition says.
pub fn check_as(definition: &str, value: &Value) {
    assert_holds(&document()["$defs"][definition], value);
}

fn assert_holds(schema: &Value, value: &Value) {
    if let Err(why) = holds(schema, value) {
        panic!("{why}\nin {value:#}");
    }
}

fn holds(schema: &Value, value: &Value) -> Result<(), String> {
    let schema = schema.as_object().ok_or_else(|| format!("no such definition, for {value}"))?;
    schema.iter().try_for_each(|(keyword, want)| keyword_holds(schema, keyword, want, value))
}

fn keyword_holds(schema: &Map<String, Value>, keyword: &str, want: &Value, value: &Value) -> Result<(), String> {
    let fail = |why: String| Err(format!("{keyword}: {why}"));
    let list = || want.as_array().expect("a list");
    match keyword {
        "description" => Ok(()),
        "$ref" => {
            let name = want.as_str().unwrap().strip_prefix("#/$defs/").expect("a local reference");
            holds(&document()["$defs"][name], value).map_err(|e| format!("{name}: {e}"))
        }
        "const" if value != want => fail(format!("{value} is not {want}")),
        "enum" if !list().contains(value) => fail(format!("{value} is none of {want}")),
        "type" => {
            let one = |t: &Value| is_type(t.as_str().unwrap(), value);
            let ok = want.as_array().map_or_else(|| one(want), |all| all.iter().any(one));
            if ok { Ok(()) } else { fail(format!("{value} is not {want}")) }
        }
        "required" => {
            let Some(object) = value.as_object() else { return Ok(()) };
            match list().iter().find(|k| !object.contains_key(k.as_str().unwrap())) {
                Some(missing) => fail(format!("{missing} is missing")),
                None => Ok(()),
            }
        }
        "properties" => {
            let Some(object) = value.as_object() else { return Ok(()) };
            let known = want.as_object().unwrap();
            object
                .iter()
                .filter_map(|(k, v)| Some((k, known.get(k)?, v)))
                .try_for_each(|(k, schema, v)| holds(schema, v).map_err(|e| format!("{k}: {e}")))
        }
        "additionalProperties" => {
            assert_eq!(want, &Value::Bool(false));
            let known = schema["properties"].as_object().unwrap();
            match value.as_object().and_then(|o| o.keys().find(|k| !known.contains_key(*k))) {
                Some(unknown) => fail(format!("{unknown} is unknown")),
                None => Ok(()),
            }
        }
        "items" => value.as_array().into_iter().flatten().try_for_each(|v| holds(want, v)),
        "minItems" if value.as_array().is_some_and(|a| (a.len() as u64) < want.as_u64().unwrap()) => {
            fail("too few".into())
        }
        "minimum" if value.as_f64().is_some_and(|v| v < want.as_f64().unwrap()) => {
            fail(format!("{value} is below {want}"))
        }
        "allOf" => list().iter().try_for_each(|s| holds(s, value)),
        "anyOf" | "oneOf" => {
            let results: Vec<_> = list().iter().map(|s| holds(s, value)).collect();
            let good = results.iter().filter(|r| r.is_ok()).count();
            if good == 1 || (good > 1 && keyword == "anyOf") {
                Ok(())
            } else {
                fail(format!("{good} hold: {results:?}"))
            }
        }
        "const" | "enum" | "minItems" | "minimum" => Ok(()),
        other => panic!("the validator does not know the keyword {other}"),
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn the_validator_refuses_what_breaks_the_schema() {
    use serde_json::json;
    let bad =
        |definition: &str, value: Value| assert!(holds(&document()["$defs"][definition], &value).is_err(), "{value}");
    bad("Answer", json!({ "jsonrpc": "2.0", "id": 1 }));
    bad("Answer", json!({ "jsonrpc": "2.0", "id": 1, "result": {}, "error": { "code": -32600, "message": "" } }));
    bad("Error", json!({ "code": -32001, "message": "" }));
    bad("Error", json!({ "code": 1, "message": "" }));
    bad("Status", json!({}));
    bad("Id", json!(true));
    bad("NoParams", json!({ "a": 1 }));
}

#[test]
fn the_schema_names_the_servers_methods_and_its_own_definitions() {
    assert_eq!(methods(), sensor_poll::rpc::methods::ALL);
    for of in document()["methods"].as_object().unwrap().values() {
        for key in ["params", "result"] {
            assert!(document()["$defs"][of[key].as_str().unwrap()].is_object(), "{of}");
        }
    }
    for of in document()["notifications"].as_object().unwrap().values() {
        assert!(document()["$defs"][of.as_str().unwrap()].is_object(), "{of}");
    }
}
