//! The names of a station's points, escaped once so that a record is assembled by copying.

use std::borrow::Cow;

use super::escape;

/// A station and its points as records name them. One text holds all names and units, so that a point costs twelve
/// bytes and its letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationNames {
    id: Box<str>,
    /// `"kind":"reading","station":"ID","point":"`, ready to copy.
    head: Box<str>,
    /// Escaped point names and units.
    text: Box<str>,
    points: Box<[Place]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    name: u32,
    /// `unit` lies anywhere in the text; equal units of neighbours share one place.
    unit: u32,
    name_len: u16,
    unit_len: u16,
}

impl StationNames {
    /// Takes the points in the order in which readings name them. Names and units past 16,000 bytes are cut (no
    /// manifest has them: the limit only keeps a place small).
    pub fn new<'a>(id: &str, points: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let mut text = String::new();
        let mut places: Vec<Place> = Vec::new();
        let mut last_unit: (&str, u32, u16) = ("", 0, 0);
        for (name, unit) in points {
            let (name, name_len) = push(&mut text, name);
            let unit = unit.unwrap_or_default();
            if unit != last_unit.0 {
                let (at, len) = push(&mut text, unit);
                last_unit = (unit, at, len);
            }
            let (unit, unit_len) = if unit.is_empty() { (0, 0) } else { (last_unit.1, last_unit.2) };
            places.push(Place { name, unit, name_len, unit_len });
        }
        let mut head = String::from("\"kind\":\"reading\",\"station\":\"");
        escape::push(&mut head, id);
        head.push_str("\",\"point\":\"");
        Self {
            id: id.into(),
            head: head.into_boxed_str(),
            text: text.into_boxed_str(),
            points: places.into_boxed_slice(),
        }
    }

    /// The station's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many points it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// True for a station without points.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// A point's name.
    #[must_use]
    pub fn name(&self, point: u32) -> Option<Cow<'_, str>> {
        self.escaped_name(point).map(escape::undo)
    }

    /// A point's unit.
    #[must_use]
    pub fn unit(&self, point: u32) -> Option<Cow<'_, str>> {
        self.escaped_unit(point).map(escape::undo)
    }

    pub(super) fn head(&self) -> &str {
        &self.head
    }

    pub(super) fn escaped_name(&self, point: u32) -> Option<&str> {
        let place = self.points.get(point as usize)?;
        self.text.get(place.name as usize..place.name as usize + usize::from(place.name_len))
    }

    pub(super) fn escaped_unit(&self, point: u32) -> Option<&str> {
        let place = self.points.get(point as usize).filter(|p| p.unit_len > 0)?;
        self.text.get(place.unit as usize..place.unit as usize + usize::from(place.unit_len))
    }
}

fn push(text: &mut String, raw: &str) -> (u32, u16) {
    /// An escape is six bytes for one at most, so this much always fits the length of a place.
    const LONGEST: usize = u16::MAX as usize / 6;
    let at = text.len();
    let mut end = raw.len().min(LONGEST);
    while !raw.is_char_boundary(end) {
        end -= 1;
    }
    escape::push(text, &raw[..end]);
    let len = text.len() - at;
    (u32::try_from(at).unwrap_or(u32::MAX), u16::try_from(len).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_units_come_back_as_they_were_given() {
        let names =
            StationNames::new("bo\"iler", [("t", Some("°C")), ("a\nb", Some("°C")), ("c", None), ("d", Some("K"))]);
        assert_eq!(names.id(), "bo\"iler");
        assert_eq!(names.len(), 4);
        assert_eq!(names.name(1).as_deref(), Some("a\nb"));
        assert_eq!(names.unit(0).as_deref(), Some("°C"));
        assert_eq!(names.unit(1).as_deref(), Some("°C"));
        assert_eq!(names.unit(2), None);
        assert_eq!(names.unit(3).as_deref(), Some("K"));
        assert_eq!(names.name(4), None);
    }

    #[test]
    fn equal_units_of_neighbours_are_held_once() {
        let names = StationNames::new("s", (0..100).map(|_| ("p", Some("°C"))));
        assert_eq!(names.text.len(), 100 + "°C".len());
    }

    #[test]
    fn a_name_past_the_limit_is_cut_between_characters() {
        let long = "°".repeat(40_000);
        let names = StationNames::new("s", [(long.as_str(), None)]);
        assert!(names.name(0).is_some_and(|n| n.len() > 10_000 && n.chars().all(|c| c == '°')));
    }
}
