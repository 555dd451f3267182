//! What the demo asks of its instances.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use crate::status::{LatestReading, Status};

/// An instance of a demo answers within this, or is told as not answering.
const DEADLINE: Duration = Duration::from_millis(300);
/// An answer has at most so many bytes.
const MAX_ANSWER: u64 = 4 << 20;

/// Asks an instance by its id.
pub trait DemoSource {
    /// `Lifecycle.Status`.
    fn status(&self, instance: &str) -> impl Future<Output = Result<Status, SourceError>>;

    /// `Reading.Latest`, of all stations.
    fn latest(&self, instance: &str) -> impl Future<Output = Result<Vec<LatestReading>, SourceError>>;
}

/// Why an instance did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nobody listens, or the connection broke.
    #[error("cannot ask {} for {method}", socket.display())]
    Transport {
        /// The socket.
        socket: PathBuf,
        /// The method.
        method: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It took too long.
    #[error("{} does not answer {method} within {} ms", socket.display(), DEADLINE.as_millis())]
    Slow {
        /// The socket.
        socket: PathBuf,
        /// The method.
        method: &'static str,
    },
    /// It is no answer.
    #[error("the answer of {} to {method} cannot be read", socket.display())]
    Answer {
        /// The socket.
        socket: PathBuf,
        /// The method.
        method: &'static str,
        /// Where it is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// It refused.
    #[error("{} refuses {method}: {message}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// The method.
        method: &'static str,
        /// In its words.
        message: String,
    },
}

/// JSON-RPC over the instances' sockets, a connection for each question: the demo asks a few times a second.
#[derive(Debug)]
pub struct Sockets {
    run_dir: PathBuf,
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Response<T> {
    result: Option<T>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    message: String,
}

#[derive(Deserialize)]
struct Latest {
    readings: Vec<LatestReading>,
}

impl Sockets {
    /// The sockets of a pair's run folder.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Self {
        Self { run_dir }
    }

    async fn ask<T: DeserializeOwned>(&self, instance: &str, method: &'static str) -> Result<T, SourceError> {
        let socket = self.run_dir.join(format!("{instance}.sock"));
        let line = match timeout(DEADLINE, exchange(&socket, method)).await {
            Ok(Ok(line)) => line,
            Ok(Err(source)) => return Err(SourceError::Transport { socket, method, source }),
            Err(_) => return Err(SourceError::Slow { socket, method }),
        };
        match serde_json::from_slice::<Response<T>>(&line) {
            Ok(Response { result: Some(result), .. }) => Ok(result),
            Ok(Response { error, .. }) => {
                let message = error.map_or_else(|| "without a reason".to_owned(), |e| e.message);
                Err(SourceError::Refused { socket, method, message })
            }
            Err(source) => Err(SourceError::Answer { socket, method, source }),
        }
    }
}

async fn exchange(socket: &Path, method: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{}}}}\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

impl DemoSource for Sockets {
    async fn status(&self, instance: &str) -> Result<Status, SourceError> {
        self.ask(instance, "Lifecycle.Status").await
    }

    async fn latest(&self, instance: &str) -> Result<Vec<LatestReading>, SourceError> {
        self.ask::<Latest>(instance, "Reading.Latest").await.map(|l| l.readings)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// Answers one question with `answer`.
    async fn ask(answer: &'static str) -> Result<Vec<LatestReading>, SourceError> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("a.sock")).unwrap();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let asked: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(asked["method"], "Reading.Latest");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let source = Sockets::new(folder.path().to_owned());
        tokio::join!(source.latest("a"), server).0
    }

    #[tokio::test]
    async fn readings_are_taken_from_an_answer() {
        let answer = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"readings\":[{\"station\":\"s\",\"point\":\"p\",\
                      \"ts\":\"2026-11-30T12:00:00Z\",\"value\":1.5,\"quality\":\"good\"}]}}\n";
        let readings = ask(answer).await.unwrap();
        assert_eq!(readings[0].value, Some(serde_json::json!(1.5)));
    }

    #[tokio::test]
    async fn refusals_and_nonsense_are_told_apart() {
        let refused = ask("{\"id\":1,\"error\":{\"code\":-32001,\"message\":\"not the leader\"}}\n").await.unwrap_err();
        assert!(refused.to_string().ends_with("a.sock refuses Reading.Latest: not the leader"), "{refused}");
        assert!(matches!(ask("nonsense\n").await, Err(SourceError::Answer { .. })));
        assert!(matches!(ask("").await, Err(SourceError::Transport { .. })));
    }

    #[tokio::test]
    async fn an_instance_that_is_not_there_is_an_error_with_its_socket() {
        let source = Sockets::new("/nonexistent".into());
        assert!(matches!(source.status("b").await, Err(SourceError::Transport { .. })));
    }
}
