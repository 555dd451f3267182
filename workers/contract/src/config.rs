//! The checked configuration that a worker runs: always valid, plain data, cheap to compare.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::conditioning::Conditioning;

/// Settings of a protocol's own type, packed so that the core can carry and compare them without knowing the type.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Opaque(#[serde(with = "serde_bytes")] Vec<u8>);

impl Opaque {
    /// Packs a protocol's settings.
    ///
    /// # Panics
    /// Never for plain data: MessagePack has a form for every serde type, and memory is the only thing that can fail.
    #[must_use]
    pub fn pack<T: Serialize>(settings: &T) -> Self {
        Self(rmp_serde::to_vec(settings).expect("plain settings have a MessagePack form"))
    }

    /// Unpacks what the same protocol packed.
    ///
    /// # Errors
    /// When the bytes are of another type, which happens only between different builds.
    pub fn unpack<T: DeserializeOwned>(&self) -> Result<T, rmp_serde::decode::Error> {
        rmp_serde::from_slice(&self.0)
    }
}

impl std::fmt::Debug for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opaque({} bytes)", self.0.len())
    }
}

/// What a worker runs: the connections that are its own, each with its stations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// The protocol's name, as [`crate::Protocol::name`] gives it.
    pub protocol: String,
    /// Enabled connections only.
    pub connections: Vec<ConnectionConfig>,
}

/// A transport endpoint and the stations behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionConfig {
    /// The manifest's id of the connection.
    pub id: String,
    /// The manifest's kind, for example `modbus-tcp`.
    pub kind: String,
    /// How many transport connections may be open to the endpoint at once; stations are shared out among them.
    pub lanes: u16,
    /// What the connection owns alone.
    pub resources: Vec<Resource>,
    /// The protocol's settings of the connection.
    pub settings: Opaque,
    /// Enabled stations only.
    pub stations: Vec<StationConfig>,
}

/// A physical thing that one connection owns alone. Its name is the name of a lock file, and two owners of one
/// resource are a fault in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource(pub String);

/// A device that is polled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StationConfig {
    /// The manifest's id of the station.
    pub id: String,
    /// Names this very configuration of the station on the wire between worker and supervisor: another configuration
    /// of the same station has another handle. The supervisor gives it out; 0 before that.
    pub handle: u32,
    /// A critical station gates readiness.
    pub critical: bool,
    /// From the start of one poll to the start of the next. 0 polls without pause.
    pub poll_interval_ms: u32,
    /// From a request to its answer, at most.
    pub timeout_ms: u32,
    /// How often a request without an answer is sent again within a poll.
    pub retries: u8,
    /// A pause before each request, for devices that need one.
    pub inter_request_ms: u32,
    /// Closes the connection after each poll, for devices that serve other masters too.
    pub close_after_poll: bool,
    /// The protocol's settings of the station.
    pub settings: Opaque,
    /// Enabled points only, in the manifest's order; readings name them by their place here.
    pub points: Vec<PointConfig>,
}

impl StationConfig {
    /// True when the two would poll alike: the handle does not count.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        // Destructured so that a new field cannot be forgotten here.
        let Self {
            id,
            handle: _,
            critical,
            poll_interval_ms,
            timeout_ms,
            retries,
            inter_request_ms,
            close_after_poll,
            settings,
            points,
        } = self;
        *id == other.id
            && *critical == other.critical
            && *poll_interval_ms == other.poll_interval_ms
            && *timeout_ms == other.timeout_ms
            && *retries == other.retries
            && *inter_request_ms == other.inter_request_ms
            && *close_after_poll == other.close_after_poll
            && *settings == other.settings
            && *points == other.points
    }
}

/// Tells two lists of points apart by their names and units, in order: FNV-1a, 64 bits. Readings that name points by their
/// place are good under another configuration only when this is the same.
#[must_use]
pub fn names_digest(points: &[PointConfig]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let text = points.iter().flat_map(|p| {
        // Neither has a NUL.
        p.name.bytes().chain([0]).chain(p.unit.iter().flat_map(|u| u.bytes())).chain([0])
    });
    text.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// One value of a station.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointConfig {
    /// The point's name, unique in its station.
    pub name: Box<str>,
    /// The engineering unit, for example `°C`.
    pub unit: Option<Box<str>>,
    /// From the decoded value to the reading. `None` passes it unchanged.
    pub conditioning: Option<Box<Conditioning>>,
    /// The protocol's settings of the point: where it is and how to decode it.
    pub settings: Opaque,
}
