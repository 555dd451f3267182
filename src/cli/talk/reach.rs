//! Which instance a command reaches: the leader first, and what happens when he does not answer.
//!
//! What only looks goes on to the other instances and says so. What changes something does not: it would be done by
//! another instance than was meant. It says who answers, and a person decides.

use std::{io, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{CONTROL, TalkArgs, TalkError, candidates, whole};
use crate::rpc::{
    api::Refusal,
    client::{Client, ClientError},
    message::code,
};

/// What the leader gets when others can be asked instead; of a longer `--timeout`, a fifth.
const SHORT: Duration = Duration::from_secs(2);
/// What others get to say that they are there.
const ROLL_CALL: Duration = Duration::from_secs(1);
/// After a leader went away, before it is looked for again.
const AGAIN: Duration = Duration::from_millis(100);

/// An answer, and what a person should know about whose it is.
#[derive(Debug)]
pub struct Reached<T> {
    /// The answer.
    pub value: T,
    /// For stderr: the leader did not answer.
    pub note: Option<String>,
}

impl TalkArgs {
    /// Connects to the instance that was named, else to the leader and to nobody else: for what changes something. The
    /// leader's answer to a first call has come when this returns.
    ///
    /// # Errors
    /// When the leader does not answer: with who does.
    pub async fn connect(&self) -> Result<Client, TalkError> {
        if self.instance.is_some() {
            return self.named().await;
        }
        let error = match self.leader().await {
            Ok(client) => return Ok(client),
            Err(error) if is_lost(&error) => return Err(TalkError::Left(whole(&error), "trying")),
            Err(error) if !is_unanswered(&error) => return Err(error.into()),
            Err(error) => error,
        };
        let tried = candidates(&self.dir(), None);
        let present = self.roll_call(&tried).await;
        // A leader whose own socket is not there yet, or could not be bound.
        if let Some((name, _)) = present.iter().find(|(_, role)| role == "leader") {
            return Ok(Client::connect(&self.dir().join(name), self.deadline()).await?);
        }
        let silent = !matches!(error, ClientError::Nobody { .. });
        if present.is_empty() && !silent {
            return Err(TalkError::NoSupervisor { dir: self.dir(), tried });
        }
        let answering = present.iter().map(|(name, _)| id_of(name).to_owned()).collect();
        let why = if silent { format!("the leader does not answer: {}", whole(&error)) } else { "nobody leads".into() };
        Err(TalkError::NoLeader { why, silent, answering })
    }

    /// Asks the instance that was named, else the leader, else whoever answers first: for what only looks.
    ///
    /// # Errors
    /// When nobody answers, or the one that does says no.
    pub async fn ask<T>(&self, ask: impl AsyncFn(Client) -> Result<T, ClientError>) -> Result<Reached<T>, TalkError> {
        if self.instance.is_some() {
            return Ok(Reached { value: ask(self.named().await?).await?, note: None });
        }
        let tried = candidates(&self.dir(), None);
        // With one instance its own socket is no other way.
        let deadline = if tried.len() > 2 { self.short() } else { self.deadline() };
        let mut note = None;
        let mut first = self.ask_one(CONTROL, deadline, &ask).await;
        if let Err(error) = &first
            && is_lost(error)
        {
            note = Some(format!("the leader went away ({}); asked again", whole(error)));
            sleep(AGAIN).await;
            first = self.ask_one(CONTROL, deadline, &ask).await;
        }
        let error = match first {
            Ok(value) => return Ok(Reached { value, note }),
            Err(error) if !is_unanswered(&error) => return Err(error.into()),
            Err(error) => error,
        };
        let nobody = matches!(error, ClientError::Nobody { .. });
        let mut others: FuturesUnordered<_> =
            tried[1..].iter().map(async |name| (name, self.ask_one(name, deadline, &ask).await)).collect();
        let mut said = None;
        while let Some((name, answer)) = others.next().await {
            match answer {
                Ok(value) => {
                    let silent = || format!("the leader's socket does not answer ({})", whole(&error));
                    let note = note.or_else(|| (!nobody).then(silent));
                    let note = note.map(|n| format!("{n}; this is what instance {} says", id_of(name)));
                    return Ok(Reached { value, note });
                }
                Err(ClientError::Nobody { .. }) => {}
                Err(other) => said = Some(other),
            }
        }
        drop(others);
        match said {
            // Who is there and says no, or nothing, is worth more than a leader that is not there.
            Some(said) if nobody => Err(said.into()),
            None if nobody => Err(TalkError::NoSupervisor { dir: self.dir(), tried }),
            _ => Err(error.into()),
        }
    }

    /// What a failed call of something that changes means: without a name, what is gone may have been the leader, and the
    /// next call would reach another one.
    #[must_use]
    pub fn lost(&self, error: ClientError, doing: &'static str) -> TalkError {
        let unknown = is_lost(&error) || matches!(error, ClientError::Timeout { .. });
        if self.instance.is_none() && unknown {
            return TalkError::Left(whole(&error), doing);
        }
        error.into()
    }

    fn short(&self) -> Duration {
        self.deadline().min(SHORT.max(self.deadline() / 5))
    }

    async fn named(&self) -> Result<Client, TalkError> {
        let tried = candidates(&self.dir(), self.instance.as_deref());
        match Client::connect(&self.dir().join(&tried[0]), self.deadline()).await {
            Err(ClientError::Nobody { .. }) => Err(TalkError::NoSupervisor { dir: self.dir(), tried }),
            other => Ok(other?),
        }
    }

    async fn leader(&self) -> Result<Client, ClientError> {
        let mut client = Client::connect(&self.dir().join(CONTROL), self.deadline()).await?;
        let _: Value = client.call("Lease.Status", json!({})).await?;
        Ok(client)
    }

    async fn ask_one<T>(
        &self,
        name: &str,
        deadline: Duration,
        ask: &impl AsyncFn(Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        ask(Client::connect(&self.dir().join(name), deadline).await?).await
    }

    /// The sockets beside the leader's that answer, each with its instance's role.
    async fn roll_call(&self, tried: &[String]) -> Vec<(String, String)> {
        let within = self.deadline().min(ROLL_CALL);
        let ask = async |mut client: Client| client.call::<Value>("Lease.Status", json!({})).await;
        let calls: FuturesUnordered<_> = tried[1..]
            .iter()
            .map(async |name| {
                let said = self.ask_one(name, within, &ask).await.ok()?;
                Some((name.clone(), said["role"].as_str().unwrap_or_default().to_owned()))
            })
            .collect();
        let mut present: Vec<_> = calls.filter_map(async |one| one).collect().await;
        present.sort();
        present
    }
}

/// What to do instead.
pub(super) fn instead(answering: &[String]) -> String {
    match answering {
        [] => "no other instance answers either".to_owned(),
        [one] => format!("instance {one} answers: say --instance {one} if you mean it"),
        many => format!("instances {} answer: say --instance ID if you mean one of them", many.join(", ")),
    }
}

fn id_of(name: &str) -> &str {
    name.strip_suffix(".sock").unwrap_or(name)
}

/// The connection went while it was in use.
fn is_lost(error: &ClientError) -> bool {
    match error {
        ClientError::Closed { .. } => true,
        ClientError::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        }
        ClientError::Nobody { .. }
        | ClientError::Timeout { .. }
        | ClientError::Protocol { .. }
        | ClientError::Answered(_) => false,
    }
}

/// Another instance may answer where this one did not.
fn is_unanswered(error: &ClientError) -> bool {
    match error {
        ClientError::Nobody { .. } | ClientError::Timeout { .. } | ClientError::Closed { .. } => true,
        // A stopped process takes no more connections than its queue holds.
        ClientError::Io { source, .. } => is_lost(error) || source.kind() == io::ErrorKind::WouldBlock,
        ClientError::Answered(error) => {
            error.code == code::TOO_MANY
                || matches!(error.as_refusal(), Some(Refusal::Draining | Refusal::NotLeader { .. }))
        }
        ClientError::Protocol { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_is_told_with_what_to_say() {
        assert!(instead(&[]).contains("no other"));
        assert!(instead(&["b".to_owned()]).contains("--instance b"));
        assert!(instead(&["b".to_owned(), "c".to_owned()]).contains("instances b, c"));
    }
}
