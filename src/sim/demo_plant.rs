//! The demo's plant: a boiler, a tank, a meter, and a pump drive that goes dead now and then.
//!
//! | unit | address | value |
//! | --- | --- | --- |
//! | 1 boiler | `hr:0` `hr:2` `hr:4` | temperature °C, setpoint °C (writable), pressure bar, each f32 |
//! | | `hr:6` | fault bits: 0 flame lost, 1 over temperature, 2 service due |
//! | | `co:0` `di:0` | burner (writable), flame |
//! | 2 tank | `ir:0` `ir:2` `ir:4` | level %, inflow and outflow m³/h, each f32 |
//! | | `ir:6` | volume in litres, u32 |
//! | | `co:0` `di:0` | inlet valve (writable), high level |
//! | 3 meter | `ir:0` `ir:2` | power kW as f32, energy Wh as u64 |
//! | | `ir:6` to `ir:8` | voltages of the phases, u16 in 0.1 V |
//! | | `ir:9` `ir:10` | frequency, u16 in 0.01 Hz; a sensor that is not fitted, 0x8000 |
//! | | `hr:0` to `hr:7` | serial number, 16 characters |
//! | 4 pump | `hr:0` `hr:1` `hr:3` | speed rpm as u16, current A as f32, status word (bit 0: runs) |
//! | | | dead for a few seconds about every 20 seconds |
//!
//! Floats and wide integers are big-endian, high word first (`ABCD`).

use std::{f64::consts::TAU, time::Duration};

use super::plant::{Dice, Exception, Plant, Table};

/// The serial number of the meter.
pub const SERIAL: &str = "SP-METER-0042";
const AMBIENT: f64 = 20.0;
const TANK_LITRES: f64 = 5000.0;

/// See the module.
#[derive(Debug)]
pub struct DemoPlant {
    seconds: f64,
    boiler: Boiler,
    tank: Tank,
    meter: Meter,
    pump: Pump,
}

#[derive(Debug)]
struct Boiler {
    temperature: f64,
    setpoint: [u16; 2],
    burner: bool,
    burning_seconds: f64,
}

#[derive(Debug)]
struct Tank {
    level: f64,
    inflow: f64,
    outflow: f64,
    inlet: bool,
}

#[derive(Debug)]
struct Meter {
    power: f64,
    watt_hours: f64,
    voltages: [f64; 3],
    frequency: f64,
}

#[derive(Debug)]
struct Pump {
    dice: Dice,
    speed: f64,
    /// Seconds until it goes dead, or comes back.
    turn_in: f64,
    dead: bool,
}

impl DemoPlant {
    /// A plant in the middle of its day. Plants of one seed do the same at the same time.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let turn_in = dice.between(8.0, 14.0);
        let mut plant = Self {
            seconds: 0.0,
            boiler: Boiler { temperature: 62.0, setpoint: words(80.0), burner: true, burning_seconds: 0.0 },
            tank: Tank { level: 58.0, inflow: 0.0, outflow: 0.0, inlet: true },
            meter: Meter { power: 0.0, watt_hours: 1_284_300.0, voltages: [230.0; 3], frequency: 50.0 },
            pump: Pump { dice, speed: 1450.0, turn_in, dead: false },
        };
        plant.settle(0.0);
        plant
    }

    /// One slice of time, short enough that the simple integration below holds.
    fn settle(&mut self, dt: f64) {
        self.seconds += dt;
        let t = self.seconds;
        self.boiler.settle(dt);
        self.tank.settle(dt, t);
        self.meter.settle(dt, t, self.boiler.burner, !self.pump.dead);
        self.pump.settle(dt, t);
    }

    fn table(&self, unit: u8, table: Table) -> Result<Vec<u16>, Exception> {
        let found = match unit {
            1 => self.boiler.table(table),
            2 => self.tank.table(table),
            3 => self.meter.table(table),
            4 => self.pump.table(table),
            _ => return Err(Exception::NoTarget),
        };
        found.ok_or(Exception::IllegalAddress)
    }
}

impl Boiler {
    fn settle(&mut self, dt: f64) {
        let setpoint = f64::from(float(self.setpoint));
        if self.temperature > setpoint + 1.5 {
            self.burner = false;
        } else if self.temperature < setpoint - 3.0 {
            self.burner = true;
        }
        let heat = if self.burner { 2.0 } else { 0.0 };
        self.temperature += dt * (heat - (self.temperature - AMBIENT) * 0.011);
        // A setpoint from outside may be anything; steel is not.
        self.temperature = self.temperature.clamp(0.0, 180.0);
        if self.burner {
            self.burning_seconds += dt;
        }
    }

    fn table(&self, table: Table) -> Option<Vec<u16>> {
        match table {
            Table::Holding => {
                let pressure = 1.0 + (self.temperature - AMBIENT) * 0.021;
                let over = u16::from(self.temperature > 95.0) << 1;
                let service = u16::from(self.burning_seconds > 45.0) << 2;
                let mut all = Vec::with_capacity(7);
                all.extend(words(self.temperature));
                all.extend(self.setpoint);
                all.extend(words(pressure));
                all.push(over | service);
                Some(all)
            }
            Table::Coils | Table::Discrete => Some(vec![u16::from(self.burner)]),
            Table::Input => None,
        }
    }
}

impl Tank {
    fn settle(&mut self, dt: f64, t: f64) {
        // The float switch of the tank, with a wide gap, so that the level travels.
        if self.level > 84.0 {
            self.inlet = false;
        } else if self.level < 42.0 {
            self.inlet = true;
        }
        let wanted = if self.inlet { 11.5 + 1.2 * (t * 0.9).sin() } else { 0.0 };
        self.inflow += (wanted - self.inflow) * (dt / 0.8).min(1.0);
        self.outflow = 4.8 + 1.5 * (TAU * t / 17.0).sin();
        // Time in the tank runs thirty times as fast, or nobody would see the level move.
        let litres = (self.inflow - self.outflow) * 1000.0 / 3600.0 * dt * 30.0;
        self.level = (self.level + litres / TANK_LITRES * 100.0).clamp(0.0, 100.0);
    }

    fn table(&self, table: Table) -> Option<Vec<u16>> {
        match table {
            Table::Input => {
                let volume = (self.level / 100.0 * TANK_LITRES).round() as u32;
                let mut all = Vec::with_capacity(8);
                all.extend(words(self.level));
                all.extend(words(self.inflow));
                all.extend(words(self.outflow));
                all.extend([(volume >> 16) as u16, volume as u16]);
                Some(all)
            }
            Table::Coils => Some(vec![u16::from(self.inlet)]),
            Table::Discrete => Some(vec![u16::from(self.level > 80.0)]),
            Table::Holding => None,
        }
    }
}

impl Meter {
    fn settle(&mut self, dt: f64, t: f64, burner: bool, pump: bool) {
        let base = 3.2 + 0.4 * (TAU * t / 7.0).sin();
        self.power = base + if burner { 1.8 } else { 0.0 } + if pump { 2.2 } else { 0.0 };
        self.watt_hours += self.power * 1000.0 * dt / 3600.0;
        for (phase, volts) in (0_u8..).zip(&mut self.voltages) {
            *volts = 230.0 + 1.6 * (TAU * (t / 11.0 + f64::from(phase) / 3.0)).sin();
        }
        self.frequency = 50.0 + 0.03 * (TAU * t / 5.0).sin();
    }

    fn table(&self, table: Table) -> Option<Vec<u16>> {
        match table {
            Table::Input => {
                let energy = self.watt_hours as u64;
                let mut all = Vec::with_capacity(11);
                all.extend(words(self.power));
                all.extend([48_u32, 32, 16, 0].map(|shift| (energy >> shift) as u16));
                all.extend(self.voltages.map(|v| (v * 10.0).round() as u16));
                all.push((self.frequency * 100.0).round() as u16);
                all.push(0x8000);
                Some(all)
            }
            Table::Holding => {
                let mut text = [0_u8; 16];
                text[..SERIAL.len()].copy_from_slice(SERIAL.as_bytes());
                Some(text.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]])).collect())
            }
            Table::Coils | Table::Discrete => None,
        }
    }
}

impl Pump {
    fn settle(&mut self, dt: f64, t: f64) {
        self.turn_in -= dt;
        if self.turn_in <= 0.0 {
            self.dead = !self.dead;
            // Added, not set: the plan of turns does not depend on how time is sliced.
            self.turn_in += if self.dead { self.dice.between(3.0, 5.0) } else { self.dice.between(14.0, 18.0) };
        }
        self.speed = 1450.0 + 35.0 * (TAU * t / 9.0).sin();
    }

    fn table(&self, table: Table) -> Option<Vec<u16>> {
        match table {
            Table::Holding => {
                let mut all = vec![self.speed.round() as u16];
                all.extend(words(self.speed / 1450.0 * 6.4));
                all.push(1);
                Some(all)
            }
            Table::Coils | Table::Discrete | Table::Input => None,
        }
    }
}

impl Plant for DemoPlant {
    fn step(&mut self, dt: Duration) {
        // A simulator that was stopped for an hour does not make up for it.
        let mut left = dt.min(Duration::from_secs(60)).as_secs_f64();
        while left > 0.0 {
            let slice = left.min(0.1);
            self.settle(slice);
            left -= slice;
        }
    }

    fn answers(&self, unit: u8) -> bool {
        unit != 4 || !self.pump.dead
    }

    fn read(&self, unit: u8, table: Table, address: u16, out: &mut [u16]) -> Result<(), Exception> {
        let all = self.table(unit, table)?;
        let from = usize::from(address);
        let found = all.get(from..from + out.len()).ok_or(Exception::IllegalAddress)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn write(&mut self, unit: u8, table: Table, address: u16, values: &[u16]) -> Result<(), Exception> {
        self.table(unit, table)?;
        match (unit, table, address, values) {
            (1, Table::Holding, 2, [high, low]) => {
                let wanted = float([*high, *low]);
                if !(20.0..=120.0).contains(&wanted) {
                    return Err(Exception::IllegalValue);
                }
                self.boiler.setpoint = [*high, *low];
            }
            (1, Table::Coils, 0, [bit]) => self.boiler.burner = *bit != 0,
            (2, Table::Coils, 0, [bit]) => self.tank.inlet = *bit != 0,
            _ => return Err(Exception::IllegalAddress),
        }
        Ok(())
    }
}

/// A value as a single in two registers, high word first.
fn words(value: f64) -> [u16; 2] {
    let bits = (value as f32).to_bits();
    [(bits >> 16) as u16, bits as u16]
}

fn float([high, low]: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const N: usize>(plant: &DemoPlant, unit: u8, table: Table, address: u16) -> Result<[u16; N], Exception> {
        let mut out = [0; N];
        plant.read(unit, table, address, &mut out).map(|()| out)
    }

    fn single(plant: &DemoPlant, unit: u8, table: Table, address: u16) -> f32 {
        float(read(plant, unit, table, address).unwrap())
    }

    /// Lets a time pass in steps of 100 ms and gives what `f` saw after each.
    fn watch<T>(plant: &mut DemoPlant, seconds: u32, f: impl Fn(&DemoPlant) -> T) -> Vec<T> {
        (0..seconds * 10)
            .map(|_| {
                plant.step(Duration::from_millis(100));
                f(plant)
            })
            .collect()
    }

    fn span(values: &[f32]) -> (f32, f32) {
        values.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)))
    }

    #[test]
    fn the_boiler_reaches_its_setpoint_and_swings_around_it() {
        let mut plant = DemoPlant::new(1);
        watch(&mut plant, 30, |_| ());
        let seen = watch(&mut plant, 60, |p| single(p, 1, Table::Holding, 0));
        let (low, high) = span(&seen);
        assert!((75.0..79.0).contains(&low) && (80.0..84.0).contains(&high), "{low} to {high}");
        let mut plant = DemoPlant::new(1);
        let burner = watch(&mut plant, 60, |p| read::<1>(p, 1, Table::Coils, 0).unwrap()[0]);
        assert!(burner.contains(&0) && burner.contains(&1));
    }

    #[test]
    fn the_tank_fills_and_empties_and_its_high_level_agrees() {
        let mut plant = DemoPlant::new(1);
        let levels = watch(&mut plant, 240, |p| {
            let level = single(p, 2, Table::Input, 0);
            assert_eq!(read::<1>(p, 2, Table::Discrete, 0).unwrap()[0] == 1, level > 80.0);
            let [high, low] = read(p, 2, Table::Input, 6).unwrap();
            let volume = u32::from(high) << 16 | u32::from(low);
            assert!((f64::from(volume) - f64::from(level) * 50.0).abs() < 1.0);
            level
        });
        let (low, high) = span(&levels);
        assert!(low > 35.0 && high < 90.0 && high - low > 30.0, "{low} to {high}");
    }

    #[test]
    fn the_meter_counts_energy_and_marks_what_it_does_not_have() {
        let mut plant = DemoPlant::new(1);
        let energy = |p: &DemoPlant| {
            read::<4>(p, 3, Table::Input, 2).unwrap().iter().fold(0_u64, |e, w| e << 16 | u64::from(*w))
        };
        let seen = watch(&mut plant, 20, energy);
        assert!(seen.is_sorted() && seen[199] > seen[0]);
        let [v1, v2, v3, hertz, missing] = read(&plant, 3, Table::Input, 6).unwrap();
        assert!([v1, v2, v3].iter().all(|v| (2280..2320).contains(v)));
        assert!((4990..5010).contains(&hertz));
        assert_eq!(missing, 0x8000);
        let text: Vec<u8> =
            read::<8>(&plant, 3, Table::Holding, 0).unwrap().iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(String::from_utf8(text).unwrap().trim_end_matches('\0'), SERIAL);
    }

    #[test]
    fn the_pump_goes_dead_about_every_twenty_seconds_and_alike_for_one_seed() {
        let seen = |seed| watch(&mut DemoPlant::new(seed), 200, |p| p.answers(4));
        let a = seen(5);
        assert_eq!(a, seen(5));
        assert_ne!(a, seen(6));
        let deaths = a.windows(2).filter(|w| w[0] && !w[1]).count();
        assert!((8..=12).contains(&deaths), "{deaths}");
        let dead = a.iter().filter(|up| !**up).count();
        assert!((240..=600).contains(&dead), "{dead} tenths of a second");
    }

    #[test]
    fn writes_reach_what_is_writable_and_nothing_else() {
        let mut plant = DemoPlant::new(1);
        plant.write(1, Table::Holding, 2, &words(60.0)).unwrap();
        assert_eq!(single(&plant, 1, Table::Holding, 2), 60.0);
        let low = watch(&mut plant, 60, |p| single(p, 1, Table::Holding, 0));
        assert!(low[599] < 63.0);
        assert_eq!(plant.write(1, Table::Holding, 2, &words(f64::NAN)), Err(Exception::IllegalValue));
        assert_eq!(plant.write(1, Table::Holding, 0, &[1]), Err(Exception::IllegalAddress));
        assert_eq!(plant.write(9, Table::Holding, 0, &[1]), Err(Exception::NoTarget));
        assert_eq!(read::<2>(&plant, 1, Table::Holding, 6), Err(Exception::IllegalAddress));
        assert_eq!(read::<1>(&plant, 2, Table::Holding, 0), Err(Exception::IllegalAddress));
    }

    #[test]
    fn an_hour_in_one_step_is_no_hour_of_work() {
        let mut plant = DemoPlant::new(1);
        plant.step(Duration::MAX);
        assert!(single(&plant, 1, Table::Holding, 0) < 90.0);
    }
}
