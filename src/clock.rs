//! The clocks. Every decision uses CLOCK_BOOTTIME, which goes on in suspend and reads the same in every process of one
//! boot; wall time is only data.

use std::{fmt, fs, sync::OnceLock, time::Duration};

use nix::time::{ClockId, clock_gettime};

/// A moment on CLOCK_BOOTTIME, comparable across the processes of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Boot(pub Duration);

impl Boot {
    /// Now.
    ///
    /// # Panics
    /// Never on Linux: CLOCK_BOOTTIME exists since 2.6.39 and the call has no other way to fail.
    #[must_use]
    pub fn now() -> Self {
        let t = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
        Self(Duration::from(t))
    }

    /// Time since an earlier moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment and a while; the end of the range when that is past it.
    #[must_use]
    pub fn plus(self, while_: Duration) -> Self {
        Self(self.0.saturating_add(while_))
    }
}

/// Wall time in microseconds since 1970, UTC. Data, never a reason to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Wall(pub i64);

impl Wall {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// RFC 3339, UTC, microseconds: `2026-11-30T12:00:00.123456Z`.
impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.6}"),
            Err(_) => f.write_str("1970-01-01T00:00:00.000000Z"),
        }
    }
}

/// This boot's id, as the kernel gives it, without dashes; empty where /proc has none.
#[must_use]
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().replace('-', "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_prints_with_six_digits() {
        assert_eq!(Wall(1_796_040_000_123_456).to_string(), "2026-11-30T12:00:00.123456Z");
        assert_eq!(Wall(0).to_string(), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn boot_time_moves_forward() {
        let a = Boot::now();
        assert!(Boot::now() >= a);
        assert_eq!(Boot::default().since(a), Duration::ZERO);
    }
}
