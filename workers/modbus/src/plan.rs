//! Points merged into requests.
//!
//! A request covers whole values only; a value is never split. Points are sorted once by place, and each request is a
//! run of that order, so that the points of a request are a slice and a refinement moves no point.
#![deny(clippy::disallowed_methods)]

use crate::{
    settings::{PointSettings, StationSettings},
    table::Table,
};

/// What bounds a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// So many registers at most.
    pub max_registers: u16,
    /// So many bits at most.
    pub max_coils: u16,
    /// So many unwanted registers or bits between two values at most.
    pub max_gap: u16,
    /// No merging at all.
    pub one_request_per_point: bool,
}

impl From<&StationSettings> for Limits {
    fn from(station: &StationSettings) -> Self {
        let StationSettings { max_registers, max_coils, max_gap, one_request_per_point, unit_id: _, order: _ } =
            *station;
        // Whatever the settings say, no request is longer than the protocol allows.
        let max_registers = max_registers.min(StationSettings::MAX_REGISTERS);
        let max_coils = max_coils.min(StationSettings::MAX_COILS);
        Self { max_registers, max_coils, max_gap, one_request_per_point }
    }
}

impl Limits {
    fn most(&self, table: Table) -> u32 {
        u32::from(if table.is_bits() { self.max_coils } else { self.max_registers })
    }
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The table that is read.
    pub table: Table,
    /// The zero-based wire address of the first item.
    pub address: u16,
    /// How many registers or bits.
    pub count: u16,
    first: u32,
    len: u32,
}

/// The requests of a station, in the order in which a poll sends them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    blocks: Vec<Block>,
    /// Point indices, sorted by place.
    order: Vec<u32>,
}

impl Plan {
    /// Plans the requests for the points. O(n log n), and the same for the same points.
    #[must_use]
    pub fn new(points: &[PointSettings], limits: &Limits) -> Self {
        let count = u32::try_from(points.len()).expect("a station has fewer than 2^32 points");
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_unstable_by_key(|&i| {
            let p = &points[i as usize];
            (p.table, p.address, p.count(), i)
        });
        let mut blocks: Vec<Block> = Vec::new();
        for (place, &index) in (0..).zip(&order) {
            let point = &points[index as usize];
            if let Some(block) = blocks.last_mut()
                && !limits.one_request_per_point
                && let Some(count) = block.merged_count(point, limits)
            {
                block.count = count;
                block.len += 1;
            } else {
                blocks.push(Block {
                    table: point.table,
                    address: point.address,
                    count: point.count(),
                    first: place,
                    len: 1,
                });
            }
        }
        blocks.shrink_to_fit();
        Self { blocks, order }
    }

    /// The requests.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The points of a request, by place; none for a request that does not exist.
    #[must_use]
    pub fn points_of(&self, index: usize) -> &[u32] {
        self.blocks.get(index).and_then(|b| self.order.get(b.range())).unwrap_or_default()
    }

    /// Splits a request in two at the boundary between two values that is nearest to its middle. False when it brings
    /// a single value (which several points may share), and nothing changes then.
    pub fn split(&mut self, index: usize, points: &[PointSettings]) -> bool {
        let Some(block) = self.blocks.get(index).copied() else { return false };
        let members = &self.order[block.range()];
        let place = |i: &u32| {
            let p = &points[*i as usize];
            (p.address, p.count())
        };
        let middle = members.len() / 2;
        let boundary = |at: &usize| place(&members[at - 1]) != place(&members[*at]);
        let below = (1..=middle).rev().find(boundary);
        let above = (middle + 1..members.len()).find(boundary);
        let cut = match (below, above) {
            (Some(b), Some(a)) if a - middle < middle - b => a,
            (Some(b), _) => b,
            (None, Some(a)) => a,
            (None, None) => return false,
        };
        let cut = u32::try_from(cut).expect("a place within a plan");
        let left = self.block_over(points, block.first, cut);
        let right = self.block_over(points, block.first + cut, block.len - cut);
        self.blocks[index] = left;
        self.blocks.insert(index + 1, right);
        true
    }

    /// The tightest request that covers a run of the order, which lies in one table.
    fn block_over(&self, points: &[PointSettings], first: u32, len: u32) -> Block {
        let members = &self.order[first as usize..(first + len) as usize];
        let start = &points[members[0] as usize];
        let end = members.iter().map(|&i| end_of(&points[i as usize])).max().expect("a request has at least one point");
        let count = u16::try_from(end - u32::from(start.address)).expect("part of a request that fitted");
        Block { table: start.table, address: start.address, count, first, len }
    }
}

impl Block {
    fn range(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.len) as usize
    }

    /// How many items the request has with the point added; `None` when it does not belong in it. The point lies at
    /// or behind the request's start.
    fn merged_count(&self, point: &PointSettings, limits: &Limits) -> Option<u16> {
        let start = u32::from(self.address);
        let end = start + u32::from(self.count);
        if point.table != self.table || u32::from(point.address) > end + u32::from(limits.max_gap) {
            return None;
        }
        let count = end.max(end_of(point)) - start;
        if count > limits.most(self.table) { None } else { u16::try_from(count).ok() }
    }
}

/// The address behind the point's last one.
fn end_of(point: &PointSettings) -> u32 {
    u32::from(point.address) + u32::from(point.count())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
