//! `tail`: readings, alarms and events as they happen, through a change of leader.

use std::{
    io::{self, BufWriter, StdoutLock, Write},
    time::Duration,
};

use clap::Args;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    exit::Exit,
    table::value_text,
    talk::{Reached, TalkArgs, TalkError, complain, converse, tell, unwritten},
};
use crate::rpc::client::{Client, ClientError, Notification};

/// How long a line may wait for others before it is written out.
const FLUSH: Duration = Duration::from_millis(50);
/// How often a lost leader is looked for.
const RETRY: Duration = Duration::from_millis(200);
/// How long.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Arguments of `tail`.
#[derive(Debug, Clone, Args)]
pub struct TailArgs {
    #[command(flatten)]
    talk: TalkArgs,
    /// Print journal records, byte for byte
    #[arg(long)]
    json: bool,
    /// Of this station only
    #[arg(long, value_name = "ID")]
    station: Option<String>,
    /// Events and alarms, without readings
    #[arg(long)]
    events: bool,
}

/// Why a conversation ended.
enum Ended {
    /// Our output cannot be written any more.
    Unwritten(io::Error),
    /// The supervisor went, or no longer leads.
    Lost(String),
}

/// Runs the command.
///
/// # Errors
/// When no runtime can be made; everything else has its exit code.
pub fn run(args: &TailArgs) -> anyhow::Result<Exit> {
    converse(follow(args))
}

async fn follow(args: &TailArgs) -> Result<Exit, TalkError> {
    let Reached { value: mut client, note } = subscribe(args).await?;
    if let Some(note) = note {
        tell(&note);
    }
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    loop {
        match copy(args, client, &mut out).await? {
            Ended::Unwritten(e) => return Ok(unwritten(&e)),
            Ended::Lost(why) => tell(&format!("{why}; looking for the leader")),
        }
        client = match reconnect(args).await {
            Ok(client) => client,
            Err(e) => {
                complain(&e);
                return Ok(e.exit());
            }
        };
        tell("connected again; records of the time between are in the journal");
    }
}

async fn subscribe(args: &TailArgs) -> Result<Reached<Client>, TalkError> {
    let subscribe = async |mut client: Client| {
        let _: Value = client.call("Event.Subscribe", json!({})).await?;
        if !args.events {
            let params = args.station.as_ref().map_or_else(|| json!({}), |station| json!({ "station": station }));
            let _: Value = client.call("Reading.Subscribe", params).await?;
        }
        Ok(client)
    };
    args.talk.ask(subscribe).await
}

async fn reconnect(args: &TailArgs) -> Result<Client, TalkError> {
    let until = Instant::now() + GIVE_UP;
    loop {
        match subscribe(args).await {
            Err(e) if e.may_pass() && Instant::now() < until => sleep(RETRY).await,
            done => return done.map(|reached| reached.value),
        }
    }
}

/// Copies until one of the two ends goes.
async fn copy(args: &TailArgs, mut client: Client, out: &mut BufWriter<StdoutLock<'_>>) -> Result<Ended, TalkError> {
    // When the oldest line that waits is due: a steady stream must not put it off.
    let mut due: Option<Instant> = None;
    loop {
        let next = tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                match out.flush() {
                    Ok(()) => continue,
                    Err(e) => return Ok(Ended::Unwritten(e)),
                }
            }
            next = client.notification() => next,
        };
        let notification = match next {
            Ok(notification) => notification,
            Err(e @ (ClientError::Closed { .. } | ClientError::Io { .. })) => {
                return Ok(lost(out, e.to_string()));
            }
            Err(other) => return Err(other.into()),
        };
        match notification.method.as_str() {
            "Reading" | "Event" => {
                due.get_or_insert_with(|| Instant::now() + FLUSH);
                if let Err(e) = write_record(args, &notification, out) {
                    return Ok(Ended::Unwritten(e));
                }
            }
            "Subscription.Lost" => {
                let lost = member(&notification.params, "lost");
                tell(&format!("this reader is too slow: {lost} records went by unseen (they are in the journal)"));
            }
            "Subscription.Ended" => {
                return Ok(lost(out, member(&notification.params, "why")));
            }
            _ => {}
        }
    }
}

/// The supervisor went; what it sent before is written out.
fn lost(out: &mut impl Write, why: String) -> Ended {
    out.flush().map_or_else(Ended::Unwritten, |()| Ended::Lost(why))
}

fn member(params: &RawValue, key: &str) -> String {
    let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
    match &params[key] {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

fn write_record(args: &TailArgs, notification: &Notification, out: &mut impl Write) -> io::Result<()> {
    let line = notification.params.get();
    let parsed = if args.json && args.station.is_none() { None } else { serde_json::from_str(line).ok() };
    if let (Some(wanted), Some(record)) = (&args.station, &parsed) {
        let record: &Map<String, Value> = record;
        if record.get("station").and_then(Value::as_str) != Some(wanted) {
            return Ok(());
        }
    }
    match parsed {
        Some(record) if !args.json => writeln!(out, "{}", describe(record)),
        _ => writeln!(out, "{line}"),
    }
}

/// A record in one line for a person.
fn describe(mut record: Map<String, Value>) -> String {
    let mut text = |key: &str| match record.shift_remove(key) {
        Some(Value::String(s)) => Some(s),
        _ => None,
    };
    let (ts, kind) = (text("ts").unwrap_or_default(), text("kind").unwrap_or_default());
    let line = if kind == "reading" {
        let (station, point) = (text("station").unwrap_or_default(), text("point").unwrap_or_default());
        let (unit, quality) = (text("unit"), text("quality").unwrap_or_default());
        let reason = text("reason").map(|r| format!(" ({r})")).unwrap_or_default();
        let value = value_text(record.get("value"), unit.as_deref());
        format!("{ts} {station}.{point} {value} {quality}{reason}")
    } else {
        for common in ["seq", "epoch", "crc"] {
            record.shift_remove(common);
        }
        let rest: String = record.iter().map(|(k, v)| format!(" {k}={}", value_text(Some(v), None))).collect();
        format!("{ts} {kind}{rest}")
    };
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str) -> String {
        describe(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn records_read_as_one_line() {
        assert_eq!(
            described(
                r#"{"seq":1,"epoch":3,"ts":"T","kind":"reading","station":"b","point":"t","value":21.5,"unit":"°C","quality":"good","crc":"x"}"#
            ),
            "T b.t 21.5 °C good"
        );
        assert_eq!(
            described(
                r#"{"seq":1,"epoch":3,"ts":"T","kind":"reading","station":"b","point":"t","quality":"bad","reason":"timeout","crc":"x"}"#
            ),
            "T b.t - bad (timeout)"
        );
        assert_eq!(
            described(
                r#"{"seq":2,"epoch":3,"ts":"T","kind":"event","what":"promoted","instance":"b\u001b","n":1,"crc":"x"}"#
            ),
            "T event what=promoted instance=b\u{fffd} n=1"
        );
    }
}
