//! A station as its lane knows it: conditioning of what the driver brings, the state that is told, what is counted.
//! Pure: wall time is passed in as data.

use std::{fmt, time::Duration};

use worker_contract::{Conditioner, Conditioning, Reading, Reason, Sample, Sink, Slot, StationConfig, Value};

use crate::{
    clock::{Boot, Wall},
    status::{StationCounters, StationState},
    worker::wire::StationReport,
};

/// The log sums up a station that is not well so often.
const SUMMARY_EVERY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct Station {
    /// Its place in the driver.
    pub slot: Slot,
    /// Its configuration.
    pub config: StationConfig,
    /// Where the next cycle begins: behind the request at which the last one was given up, so that one silent block does
    /// not starve those behind it.
    pub first_request: usize,
    state: StationState,
    reason: Option<String>,
    polled: bool,
    counters: StationCounters,
    /// Of each point, by its place; the rest of the points' configuration is the driver's.
    conditioning: Vec<Option<Box<Conditioning>>>,
    /// Of each point, when any has a dead band.
    conditioners: Vec<Conditioner>,
    cycle: CycleCount,
    changed: bool,
    trouble: Trouble,
}

/// What the log says of a station that is not well: one line at the change, then a summary a minute.
#[derive(Debug, Default)]
struct Trouble {
    told: Boot,
    cycles: u64,
}

#[derive(Debug, Default)]
struct CycleCount {
    good: u64,
    bad: u64,
    first_bad: Option<Reason>,
}

impl Station {
    /// A station that was not polled yet.
    #[must_use]
    pub fn new(slot: Slot, mut config: StationConfig) -> Self {
        // The driver has taken what it needs of the points; with a hundred thousand of them the copy would count.
        let conditioning: Vec<_> = std::mem::take(&mut config.points).into_iter().map(|p| p.conditioning).collect();
        let dead_bands = conditioning.iter().flatten().any(|c| c.dead_band.is_some());
        let conditioners = if dead_bands { vec![Conditioner::default(); conditioning.len()] } else { Vec::new() };
        Self {
            slot,
            config,
            first_request: 0,
            state: StationState::Connecting,
            reason: None,
            polled: false,
            counters: StationCounters::default(),
            conditioning,
            conditioners,
            cycle: CycleCount::default(),
            changed: true,
            trouble: Trouble::default(),
        }
    }

    /// How many points it has.
    #[must_use]
    pub fn points(&self) -> u32 {
        u32::try_from(self.conditioning.len()).unwrap_or(u32::MAX)
    }

    /// The time for one request.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.timeout_ms))
    }

    /// A sink that conditions samples into `out`.
    pub fn sink<'a>(&'a mut self, out: &'a mut Vec<Reading>) -> StationSink<'a> {
        StationSink { station: self, out }
    }

    /// A cycle begins.
    pub fn begin(&mut self, missed: u64) {
        self.counters.polls += 1;
        self.counters.missed += missed;
        self.cycle = CycleCount::default();
        self.changed = true;
    }

    /// A request was sent and ended so much later.
    pub fn requested(&mut self, took: Duration, sent: u64, received: u64) {
        self.counters.requests += 1;
        self.counters.round_trip_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counters.bytes_sent += sent;
        self.counters.bytes_received += received;
    }

    /// The cycle is over. True when the state changed.
    pub fn finish(&mut self, ended: Ended, backoff: Option<Duration>, now: Wall) -> bool {
        self.trouble.cycles += 1;
        self.counters.backoff_ms = backoff.map_or(0, |b| u64::try_from(b.as_millis()).unwrap_or(u64::MAX));
        let (state, reason) = match ended {
            Ended::Disconnected(why) => (StationState::Disconnected, Some(why)),
            Ended::Silent if backoff.is_some() => (StationState::Backoff, Some(Reason::Timeout.to_string())),
            Ended::Silent | Ended::Answered if self.cycle.bad > 0 => {
                let all = self.cycle.good + self.cycle.bad;
                let first = self.cycle.first_bad.map_or_else(String::new, |r| r.to_string());
                let why =
                    if self.cycle.bad == all { first } else { format!("{first} ({} of {all} points)", self.cycle.bad) };
                (StationState::Degraded, Some(why))
            }
            Ended::Silent | Ended::Answered => {
                self.counters.last_good_us = now.0;
                (StationState::Good, None)
            }
        };
        if matches!(state, StationState::Good | StationState::Degraded) {
            self.polled = true;
        }
        let changed = state != self.state || (state != StationState::Good && reason != self.reason);
        let crossed = state != self.state;
        self.state = state;
        self.reason = reason;
        self.changed |= changed;
        crossed
    }

    /// How many cycles went by since the log last spoke of this station, when it is time for a line: at a change of
    /// state, and once a minute while the state is not good.
    pub fn worth_a_line(&mut self, crossed: bool, now: Boot) -> Option<u64> {
        let due = now.since(self.trouble.told) >= SUMMARY_EVERY && self.state != StationState::Good;
        (crossed || due).then(|| {
            self.trouble.told = now;
            std::mem::take(&mut self.trouble.cycles)
        })
    }

    /// The state and its reason.
    #[must_use]
    pub fn state(&self) -> (StationState, Option<&str>) {
        (self.state, self.reason.as_deref())
    }

    /// What is counted.
    #[must_use]
    pub fn counters(&self) -> &StationCounters {
        &self.counters
    }

    /// The report, when anything changed since the last one.
    pub fn take_report(&mut self) -> Option<StationReport> {
        std::mem::take(&mut self.changed).then(|| StationReport {
            handle: self.config.handle,
            state: self.state,
            reason: self.reason.clone(),
            polled: self.polled,
            counters: self.counters.clone(),
        })
    }

    fn push(&mut self, point: u32, sample: Sample, out: &mut Vec<Reading>) {
        let Some(rules) = self.conditioning.get(point as usize) else { return };
        let conditioned = match (sample, rules.as_deref()) {
            (Ok(value), Some(rules)) => rules.apply(value),
            (Ok(value), None) => Conditioning::PLAIN.apply(value),
            (Err(reason), _) => Err(reason),
        };
        if let (Some(rules), Some(memory)) = (rules.as_deref(), self.conditioners.get_mut(point as usize))
            && !memory.keep(rules, &conditioned)
        {
            self.count(&conditioned);
            return;
        }
        self.count(&conditioned);
        out.push(match conditioned {
            Ok((value, reason)) => Reading { point, value: Some(value), reason },
            Err(reason) => Reading { point, value: None, reason: Some(reason) },
        });
    }

    fn count(&mut self, conditioned: &Result<(Value, Option<Reason>), Reason>) {
        self.counters.reads += u64::from(conditioned.is_ok());
        let (Ok((_, Some(reason))) | Err(reason)) = conditioned else {
            self.cycle.good += 1;
            return;
        };
        let reason = *reason;
        self.cycle.bad += 1;
        self.cycle.first_bad.get_or_insert(reason);
        match self.counters.errors.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, n)) => *n += 1,
            None => self.counters.errors.push((reason, 1)),
        }
    }
}

/// How a cycle ended, for the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The station answered, be it in part.
    Answered,
    /// It did not answer at all.
    Silent,
    /// There is no connection, and why.
    Disconnected(String),
}

/// Conditions samples of one station.
pub struct StationSink<'a> {
    station: &'a mut Station,
    out: &'a mut Vec<Reading>,
}

impl Sink for StationSink<'_> {
    fn push(&mut self, point: u32, sample: Sample) {
        self.station.push(point, sample, self.out);
    }
}

impl fmt::Debug for StationSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StationSink({})", self.station.config.id)
    }
}

#[cfg(test)]
mod tests {
    use worker_contract::{Opaque, PointConfig};

    use super::*;

    fn station(points: Vec<Option<Conditioning>>) -> Station {
        let points = points
            .into_iter()
            .enumerate()
            .map(|(i, c)| PointConfig {
                name: format!("p{i}").into(),
                unit: None,
                conditioning: c.map(Box::new),
                settings: Opaque::default(),
            })
            .collect();
        Station::new(
            0,
            StationConfig {
                id: "s".into(),
                handle: 1,
                critical: false,
                poll_interval_ms: 100,
                timeout_ms: 100,
                retries: 0,
                inter_request_ms: 0,
                close_after_poll: false,
                settings: Opaque::default(),
                points,
            },
        )
    }

    #[test]
    fn one_bad_point_degrades_and_the_reason_says_how_many() {
        let mut s = station(vec![None, None]);
        let mut out = Vec::new();
        s.begin(0);
        s.sink(&mut out).push(0, Ok(Value::Int(1)));
        s.sink(&mut out).push(1, Err(Reason::Exception(2)));
        assert!(s.finish(Ended::Answered, None, Wall(5)));
        assert_eq!(s.state(), (StationState::Degraded, Some("exception:2 (1 of 2 points)")));
        assert_eq!(out.len(), 2);
        assert_eq!(s.counters().errors, [(Reason::Exception(2), 1)]);
    }

    #[test]
    fn the_first_good_poll_clears_everything() {
        let mut s = station(vec![None]);
        let mut out = Vec::new();
        for _ in 0..1000 {
            s.begin(0);
            s.sink(&mut out).push(0, Err(Reason::Exception(11)));
            s.finish(Ended::Answered, None, Wall(5));
        }
        assert_eq!(s.state(), (StationState::Degraded, Some("exception:11")));
        assert_eq!(s.counters().errors.len(), 1);
        s.begin(0);
        s.sink(&mut out).push(0, Ok(Value::Int(7)));
        assert!(s.finish(Ended::Answered, None, Wall(9)));
        assert_eq!(s.state(), (StationState::Good, None));
        assert_eq!(s.counters().last_good_us, 9);
    }

    #[test]
    fn a_value_inside_the_dead_band_is_read_and_not_recorded() {
        let band = Conditioning { dead_band: Some(1.0), ..Conditioning::default() };
        let mut s = station(vec![Some(band)]);
        let mut out = Vec::new();
        for v in [10, 10, 11, 12] {
            s.begin(0);
            s.sink(&mut out).push(0, Ok(Value::Int(v)));
            s.finish(Ended::Answered, None, Wall(0));
        }
        assert_eq!(
            out.iter().map(|r| r.value.clone()).collect::<Vec<_>>(),
            [Some(Value::Int(10)), Some(Value::Int(12))]
        );
        assert_eq!(s.counters().reads, 4);
    }

    #[test]
    fn an_outage_of_an_hour_is_one_line_and_a_summary_a_minute() {
        let mut s = station(vec![None]);
        let (mut lines, mut cycles) = (0, 0);
        for tenth in 0..36_000_u64 {
            s.begin(0);
            let crossed = s.finish(Ended::Disconnected("refused".into()), None, Wall(0));
            if let Some(n) = s.worth_a_line(crossed, Boot(Duration::from_millis(1_000_000 + tenth * 100))) {
                lines += 1;
                cycles += n;
            }
        }
        assert_eq!(lines, 60);
        assert!(cycles > 35_000, "{cycles}");
    }

    #[test]
    fn an_unchanged_station_reports_once() {
        let mut s = station(vec![None]);
        assert!(s.take_report().is_some());
        assert!(s.take_report().is_none());
        s.begin(0);
        assert_eq!(s.take_report().map(|r| r.counters.polls), Some(1));
    }
}
