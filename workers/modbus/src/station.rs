//! A station as a driver knows it: its points, its plan, and what the device's refusals made of the plan.
#![deny(clippy::disallowed_methods)]

use worker_contract::{DriverError, Outcome, PlannedRequest, Reason, Sink, StationConfig};

use crate::{
    map,
    plan::{Block, Limits, Plan},
    settings::{PointSettings, StationSettings},
};

/// The codes by which a device refuses a request's extent: illegal data address, illegal data value (which is how
/// some say that they do not serve so many registers at once).
const REFUSES_EXTENT: [u8; 2] = [2, 3];

/// A station and its requests.
#[derive(Debug, Clone)]
pub struct Station {
    unit: u8,
    limits: Limits,
    points: Box<[PointSettings]>,
    plan: Plan,
    split: Split,
}

/// What splitting did to the plan.
///
/// A plan that was split stays so: the refused value is still refused at the next poll. But a device that refuses
/// everything for a while (it starts, it is being programmed) has all its requests split down to single values, and
/// that says nothing about any of them. When such a device gives values again, the plan is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Split {
    /// The plan is as it was made.
    #[default]
    Not,
    /// Requests were split. What the current poll saw since then.
    Refined {
        /// A request brought values.
        good: bool,
        /// A single value was refused.
        refused: bool,
    },
    /// A whole poll brought refusals only.
    RefusesAll,
    /// It gives values again: plan anew at the start of the next poll.
    Recovered,
}

impl Station {
    /// Reads a station's settings and plans its requests.
    ///
    /// # Errors
    /// [`worker_contract::Next::Reconfigure`] when the settings are not of this build.
    pub fn new(config: &StationConfig) -> Result<Self, DriverError> {
        let unreadable = |what: &str, error: &dyn std::fmt::Display| {
            DriverError::reconfigure(format!("station \"{}\": {what} cannot be read: {error}", config.id))
        };
        let settings: StationSettings = config.settings.unpack().map_err(|e| unreadable("its Modbus settings", &e))?;
        let points = config
            .points
            .iter()
            .map(|p| p.settings.unpack().map_err(|e| unreadable(&format!("point \"{}\"", p.name), &e)))
            .collect::<Result<Box<[PointSettings]>, _>>()?;
        let limits = Limits::from(&settings);
        let plan = Plan::new(&points, &limits);
        Ok(Self { unit: settings.unit_id, limits, points, plan, split: Split::Not })
    }

    /// The unit that is asked.
    #[must_use]
    pub fn unit(&self) -> u8 {
        self.unit
    }

    /// How many requests a poll takes at present.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.plan.blocks().len()
    }

    /// A request.
    #[must_use]
    pub fn block(&self, index: usize) -> Option<Block> {
        self.plan.blocks().get(index).copied()
    }

    /// The points that a request brings.
    #[must_use]
    pub fn points_of(&self, index: usize) -> &[u32] {
        self.plan.points_of(index)
    }

    /// The planned requests, for a person.
    #[must_use]
    pub fn describe(&self) -> Vec<PlannedRequest> {
        let describe = |(index, block): (usize, &Block)| PlannedRequest {
            operation: format!("read {}", block.table.words()),
            function: block.table.read_function().value(),
            wire_address: u32::from(block.address),
            count: u32::from(block.count),
            plc_address: block.table.plc_address(block.address),
            points: self.plan.points_of(index).to_vec(),
        };
        self.plan.blocks().iter().enumerate().map(describe).collect()
    }

    /// A poll begins (its first request may come several times). True when the plan was made anew.
    pub fn begin_poll(&mut self) -> bool {
        match self.split {
            Split::Not | Split::RefusesAll => false,
            Split::Refined { good: false, refused: true } => {
                tracing::debug!(unit = self.unit, requests = self.requests(), "the device refuses every request");
                self.split = Split::RefusesAll;
                false
            }
            Split::Refined { .. } => {
                self.split = Split::Refined { good: false, refused: false };
                false
            }
            Split::Recovered => {
                self.split = Split::Not;
                self.plan = Plan::new(&self.points, &self.limits);
                tracing::debug!(unit = self.unit, requests = self.requests(), "requests merged again");
                true
            }
        }
    }

    /// Decodes an answer's data for each point of the request.
    pub fn deliver(&mut self, index: usize, block: &Block, data: &[u8], sink: &mut dyn Sink) {
        match &mut self.split {
            Split::Not | Split::Recovered => {}
            Split::Refined { good, refused: _ } => *good = true,
            Split::RefusesAll => self.split = Split::Recovered,
        }
        for &point in self.plan.points_of(index) {
            let Some(settings) = self.points.get(point as usize) else { continue };
            sink.push(point, map::decode(settings.decoder, data, settings.address.wrapping_sub(block.address)));
        }
    }

    /// The device refused. An extent that it refuses is split to find which value it is about; a single value, or any
    /// other refusal, is what the readings say.
    pub fn refused(&mut self, index: usize, code: u8, sink: &mut dyn Sink) -> Outcome {
        if REFUSES_EXTENT.contains(&code) && self.plan.split(index, &self.points) {
            tracing::debug!(unit = self.unit, code, requests = self.requests(), "request split");
            if self.split == Split::Not {
                self.split = Split::Refined { good: false, refused: false };
            }
            return Outcome::Split;
        }
        if let Split::Refined { refused, good: _ } = &mut self.split {
            *refused = true;
        }
        for &point in self.plan.points_of(index) {
            sink.push(point, Err(Reason::Exception(code)));
        }
        Outcome::Done
    }
}
