use super::*;
use crate::settings::{Decoder, Encoding, Layout, Number, Order};
use proptest::prelude::*;

const WIDE: Limits = Limits { max_registers: 125, max_coils: 2000, max_gap: 0, one_request_per_point: false };

fn point(table: Table, address: u16, decoder: Decoder) -> PointSettings {
    PointSettings { table, address, decoder, writable: false }
}

fn u16_at(address: u16) -> PointSettings {
    point(Table::HoldingRegisters, address, Decoder::Number(Number::U16, Order::default()))
}

fn u32_at(address: u16) -> PointSettings {
    point(Table::HoldingRegisters, address, Decoder::Number(Number::U32, Order::default()))
}

fn extents(plan: &Plan) -> Vec<(u16, u16)> {
    plan.blocks().iter().map(|b| (b.address, b.count)).collect()
}

#[test]
fn m12_498_contiguous_registers_at_50_a_request_take_ten_requests() {
    let points: Vec<_> = (0..498).map(u16_at).collect();
    let plan = Plan::new(&points, &Limits { max_registers: 50, ..WIDE });
    let mut want: Vec<_> = (0..9).map(|i| (i * 50, 50)).collect();
    want.push((450, 48));
    assert_eq!(extents(&plan), want);
    // 249 values of two registers in requests of at most 49: none is cut in half.
    let points: Vec<_> = (0..249).map(|i| u32_at(i * 2)).collect();
    let plan = Plan::new(&points, &Limits { max_registers: 49, ..WIDE });
    assert!(extents(&plan).iter().all(|(_, count)| count % 2 == 0 && *count <= 48));
}

#[test]
fn points_that_share_registers_share_the_request() {
    let bits = (0..16).map(|b| point(Table::HoldingRegisters, 7, Decoder::Bit(b)));
    let points: Vec<_> = bits.chain([u16_at(7), u32_at(6)]).collect();
    let plan = Plan::new(&points, &WIDE);
    assert_eq!(extents(&plan), [(6, 2)]);
    assert_eq!(plan.points_of(0).len(), 18);
}

#[test]
fn gaps_are_read_along_only_up_to_max_gap() {
    let points = [u16_at(0), u16_at(4), u16_at(9)];
    assert_eq!(extents(&Plan::new(&points, &WIDE)), [(0, 1), (4, 1), (9, 1)]);
    assert_eq!(extents(&Plan::new(&points, &Limits { max_gap: 3, ..WIDE })), [(0, 5), (9, 1)]);
    assert_eq!(extents(&Plan::new(&points, &Limits { max_gap: 4, ..WIDE })), [(0, 10)]);
    assert_eq!(extents(&Plan::new(&points, &Limits { max_gap: 4, one_request_per_point: true, ..WIDE })).len(), 3);
}

#[test]
fn the_last_registers_can_be_read() {
    let plan = Plan::new(&[u16_at(65535), u32_at(65533)], &WIDE);
    assert_eq!(extents(&plan), [(65533, 3)]);
}

#[test]
fn a_split_finds_the_bad_value_in_few_steps_and_ends_at_single_values() {
    let points: Vec<_> = (0..64).map(|i| u32_at(i * 2)).collect();
    let limits = Limits { max_registers: 125, ..WIDE };
    let mut plan = Plan::new(&points, &limits);
    let bad = 37 * 2;
    let holds = |b: &Block| (u32::from(b.address)..u32::from(b.address) + u32::from(b.count)).contains(&bad);
    let mut splits = 0;
    while let Some(index) = plan.blocks().iter().position(|b| holds(b) && b.count > 2) {
        assert!(plan.split(index, &points));
        splits += 1;
    }
    assert!(splits <= 6, "{splits} splits");
    let index = plan.blocks().iter().position(holds).expect("still covered");
    assert!(!plan.split(index, &points), "a single value is not split");
    assert_eq!(plan.points_of(index), [37]);
}

#[test]
fn bits_of_one_register_are_one_value_and_are_not_split() {
    let points: Vec<_> = (0..16).map(|b| point(Table::HoldingRegisters, 7, Decoder::Bit(b))).collect();
    let mut plan = Plan::new(&points, &WIDE);
    assert!(!plan.split(0, &points));
    assert!(!plan.split(1, &points));
    assert_eq!(plan.blocks().len(), 1);
}

fn any_point() -> impl Strategy<Value = PointSettings> {
    let near = prop_oneof![4 => 0_u16..300, 1 => 65000_u16..=65535];
    let decoder = prop_oneof![
        Just(Decoder::Number(Number::U16, Order::default())),
        Just(Decoder::Number(Number::F32, Order::default())),
        Just(Decoder::Number(Number::F64, Order::default())),
        (0_u8..16).prop_map(Decoder::Bit),
        (1_u8..=40).prop_map(|n| Decoder::Text(n, Layout::HighLow, Encoding::Utf8)),
        (1_u8..=20).prop_map(|n| Decoder::Text(n, Layout::Low, Encoding::Utf8)),
    ];
    (0_usize..4, near, decoder).prop_map(|(table, address, decoder)| {
        let table = Table::ALL[table];
        let decoder = if table.is_bits() { Decoder::Coil } else { decoder };
        let address = address.min((65536 - u32::from(decoder.count())) as u16);
        point(table, address, decoder)
    })
}

fn check(plan: &Plan, points: &[PointSettings], limits: &Limits) -> Result<(), TestCaseError> {
    let mut seen = vec![0; points.len()];
    let mut needed = vec![vec![false; 65536]; 4];
    for p in points {
        needed[p.table as usize][usize::from(p.address)..end_of(p) as usize].fill(true);
    }
    for (index, block) in plan.blocks().iter().enumerate() {
        let range = u32::from(block.address)..u32::from(block.address) + u32::from(block.count);
        prop_assert!(u32::from(block.count) <= limits.most(block.table) && block.count > 0 && range.end <= 65536);
        for &i in plan.points_of(index) {
            let p = &points[i as usize];
            seen[i as usize] += 1;
            prop_assert_eq!(p.table, block.table);
            prop_assert!(range.start <= u32::from(p.address) && end_of(p) <= range.end);
        }
        // What a wider value in another request needs may lie between two values of this one after a split.
        let needed = &needed[block.table as usize];
        let wanted: Vec<bool> = range.map(|at| needed[at as usize]).collect();
        let longest_gap = wanted.split(|w| *w).map(<[bool]>::len).max().unwrap_or(0);
        prop_assert!(longest_gap <= usize::from(limits.max_gap));
        prop_assert!(wanted[0] && wanted[wanted.len() - 1]);
    }
    prop_assert!(seen.iter().all(|n| *n == 1), "each point is brought once: {:?}", seen);
    Ok(())
}

proptest! {
    #[test]
    fn every_point_is_brought_whole_once_and_nothing_unwanted_is_read(
        points in prop::collection::vec(any_point(), 0..200),
        max_registers in 20_u16..=125,
        max_coils in 1_u16..=2000,
        max_gap in prop_oneof![Just(0_u16), 0_u16..20],
        one_request_per_point: bool,
        splits in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let limits = Limits { max_registers, max_coils, max_gap, one_request_per_point };
        let mut plan = Plan::new(&points, &limits);
        prop_assert_eq!(&plan, &Plan::new(&points, &limits));
        check(&plan, &points, &limits)?;
        for index in splits.iter().filter(|_| !points.is_empty()) {
            let before = plan.blocks().len();
            let split = plan.split(index.index(before), &points);
            prop_assert_eq!(plan.blocks().len(), before + usize::from(split));
        }
        check(&plan, &points, &limits)?;
        // A device that refuses every extent: one request for each distinct value, and then no more.
        while (0..plan.blocks().len()).any(|i| plan.split(i, &points)) {}
        check(&plan, &points, &limits)?;
        let distinct: std::collections::BTreeSet<_> = points.iter().map(|p| (p.table, p.address, p.count())).collect();
        prop_assert!(one_request_per_point || plan.blocks().len() >= distinct.len());
        prop_assert!(plan.blocks().len() <= points.len());
    }
}
