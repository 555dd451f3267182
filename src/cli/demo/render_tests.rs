//! The table, as it looks.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::cli::demo::testing::view;

fn text(view: &View, width: usize, height: usize) -> String {
    render(view, width, height, false).join("\n")
}

#[test]
fn with_room_each_point_has_a_line_and_the_addresses_are_there() {
    let expected = "\
sensor-poll demo   12.3 s   Ctrl-C drains the pair and ends

  a  dead
  b  leader    epoch 2    since 12:00:10 UTC  pid 4711

  station               point                  value unit   quality
  boiler    good        temperature            78.46 °C     good
                        burner                    on        good
  pump      backoff     speed                      – rpm    bad timeout
    timeout             status                     0        good

  journal   seq 1,234   1,200 readings   38/s   98,765 bytes   first after 96 ms
  takeover 1: a (epoch 1) was killed
    b answered as leader after 9 ms under epoch 2
    first reading after 104 ms
    readings missed 0, doubled 0
  killed a (leader, epoch 1, pid 4710) with SIGKILL

  curl http://127.0.0.1:8600/metrics
  curl --unix-socket /tmp/sensor-poll-0a1b2c/run/a.http.sock http://a/readyz
  curl --unix-socket /tmp/sensor-poll-0a1b2c/run/b.http.sock http://b/readyz
  journal   /tmp/sensor-poll-0a1b2c/state/journal
  logs      /tmp/sensor-poll-0a1b2c/a.log /tmp/sensor-poll-0a1b2c/b.log";
    assert_eq!(text(&view(), 80, 50), expected);
}

#[test]
fn with_little_room_a_station_is_a_paragraph_and_the_addresses_go() {
    let expected = "\
sensor-poll demo   12.3 s   Ctrl-C drains the pair and ends

  a  dead
  b  leader    epoch 2    since 12:00:10 UTC  pid 4711

  boiler    good        temperature 78.46 °C  burner on
  pump      backoff     speed –  status 0

  journal   seq 1,234   1,200 readings   38/s   98,765 bytes   first after 96 ms
  takeover 1: a (epoch 1) was killed
    b answered as leader after 9 ms under epoch 2
    first reading after 104 ms
    readings missed 0, doubled 0
  killed a (leader, epoch 1, pid 4710) with SIGKILL";
    assert_eq!(text(&view(), 80, 14), expected);
}

#[test]
fn it_never_has_more_lines_or_columns_than_the_terminal() {
    let mut view = view();
    view.latest[0].value = Some(json!("x".repeat(500)));
    for height in 0..60 {
        for width in [0, 1, 7, 40, 80, 200] {
            let lines = render(&view, width, height, false);
            assert!(lines.len() <= height, "{width} by {height}");
            assert!(lines.iter().all(|l| l.chars().count() <= width), "{width} by {height}");
        }
    }
}

#[test]
fn while_nobody_leads_it_says_so() {
    let mut view = view();
    view.instances[1].word = None;
    view.status = None;
    view.takeovers[0].measured.answered = None;
    view.takeovers[0].measured.first_reading = None;
    view.takeovers[0].missed = None;
    let text = text(&view, 80, 50);
    assert!(text.contains("  b  no answer"), "{text}");
    assert!(text.contains("\n  nobody leads\n"), "{text}");
    assert!(text.contains("was killed\n    waiting for the other one to lead\n"), "{text}");
}

#[test]
fn colour_marks_what_is_good_and_what_is_not() {
    let text = render(&view(), 80, 50, true).join("\n");
    assert!(text.contains("\x1b[32mleader\x1b[0m"));
    assert!(text.contains("\x1b[33mbackoff\x1b[0m"));
    assert!(text.contains("\x1b[1;31mbad\x1b[0m timeout"));
    assert_eq!(text.matches('\x1b').count() % 2, 0, "each colour ends");
}

#[test]
fn a_trouble_of_the_journal_is_told() {
    let mut view = view();
    view.journal.trouble = Some("no space left on device".to_owned());
    view.first_reading = Some(Duration::from_millis(7));
    assert!(text(&view, 80, 50).contains("\n            no space left on device\n"));
}
