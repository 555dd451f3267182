//! Readings and events as they happen.

use std::time::Duration;

use sensor_poll::rpc::{message::code, server::Limits};
use serde_json::{Value, json};

use super::fake::{Fake, PATIENCE, Served, line, publish, until};

#[tokio::test]
async fn two_subscribers_get_the_records_of_their_topic_byte_for_byte() {
    let served = Served::leader().await;
    let (mut all, mut one) = (served.peer().await, served.peer().await);
    all.call("Reading.Subscribe", json!({})).await;
    all.call("Event.Subscribe", json!({})).await;
    one.call("Reading.Subscribe", json!({ "station": "pump" })).await;
    let lines =
        [line("reading", "boiler", 1), line("reading", "pump", 2), line("event", "pump", 3), line("ack", "x", 0)];
    publish(&served.fake.hub, &lines);

    let frame = |method: &str, line: &str| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{line}}}");
    let mut got = vec![];
    for _ in 0..3 {
        got.push(all.frame().await.unwrap());
    }
    got.sort();
    assert_eq!(got, [frame("Event", &lines[2]), frame("Reading", &lines[0]), frame("Reading", &lines[1])]);
    for frame in &got {
        super::schema::check_message(&serde_json::from_str(frame).unwrap());
    }
    assert_eq!(one.frame().await.unwrap(), frame("Reading", &lines[1]));
}

#[tokio::test]
async fn a_slow_subscriber_is_told_what_it_lost_and_holds_up_nobody() {
    let served = Served::leader().await;
    let mut slow = served.peer().await;
    slow.call("Reading.Subscribe", json!({})).await;
    // It reads nothing while far more is published than its socket and its queue hold; publishing never waits.
    let (chunks, per_chunk) = (200_u64, 200_u64);
    for chunk in 0..chunks {
        let lines: Vec<_> = (0..per_chunk).map(|i| line("reading", "boiler", chunk * per_chunk + i)).collect();
        publish(&served.fake.hub, &lines);
        tokio::task::yield_now().await;
    }
    let mut quick = served.peer().await;
    quick.call("Lease.Status", json!({})).await;

    let (mut seen, mut lost, mut expected) = (0, 0, 0);
    while seen + lost < chunks * per_chunk {
        let message: Value = serde_json::from_str(&slow.frame().await.unwrap()).unwrap();
        match message["method"].as_str().unwrap() {
            "Reading" => {
                assert_eq!(message["params"]["seq"], expected, "in order, and no gap but those that were told");
                (seen, expected) = (seen + 1, expected + 1);
            }
            "Subscription.Lost" => {
                super::schema::check_message(&message);
                let n = message["params"]["lost"].as_u64().unwrap();
                (lost, expected) = (lost + n, expected + n);
            }
            other => panic!("{other}"),
        }
    }
    assert!(seen > 0 && lost > 0, "seen {seen}, lost {lost}");
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_holds_two_mebibytes_at_most() {
    let served = Served::leader().await;
    let mut slow = served.peer().await;
    slow.call("Reading.Subscribe", json!({})).await;
    // Commits of more than a mebibyte, as they come at tens of thousands of readings a second.
    let lines: Vec<_> = (0..6000).map(|i| line("reading", "boiler", i)).collect();
    for _ in 0..40 {
        publish(&served.fake.hub, &lines);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    served.fake.hub.close();
    // Whatever it gets now was held for it: in the hub, before the writer, and in the kernel.
    let mut held = 0;
    while let Some(frame) = slow.frame().await.filter(|f| !f.contains("Subscription.Ended")) {
        held += frame.len();
    }
    assert!(held > 0 && held < 2 << 20, "{held}");
}

#[tokio::test]
async fn a_subscriber_that_takes_nothing_at_all_is_closed() {
    let limits = Limits { write: Duration::from_millis(100), ..Limits::default() };
    let served = Served::new(Fake::default(), limits).await;
    let mut stuck = served.peer().await;
    stuck.call("Reading.Subscribe", json!({})).await;
    let lines: Vec<_> = (0..1000).map(|i| line("reading", "boiler", i)).collect();
    for _ in 0..20 {
        publish(&served.fake.hub, &lines);
        tokio::task::yield_now().await;
    }
    until("it is unsubscribed", || !served.fake.hub.wanted()).await;
}

#[tokio::test]
async fn a_subscriber_that_goes_is_forgotten_at_once_though_nothing_is_published() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    peer.call("Event.Subscribe", json!({})).await;
    assert!(served.fake.hub.wanted());
    drop(peer);
    until("it is unsubscribed", || !served.fake.hub.wanted()).await;
}

#[tokio::test]
async fn subscriptions_of_a_connection_are_bounded() {
    let served = Served::new(Fake::default(), Limits { subscriptions: 2, ..Limits::default() }).await;
    let mut peer = served.peer().await;
    peer.call("Event.Subscribe", json!({})).await;
    peer.call("Reading.Subscribe", json!({})).await;
    assert_eq!(peer.call("Reading.Subscribe", json!({})).await["error"]["code"], code::TOO_MANY);
    assert!(served.peer().await.call("Reading.Subscribe", json!({})).await["result"].is_object());
}

#[tokio::test]
async fn a_subscription_ends_with_a_word_when_the_leader_goes_or_drains() {
    let served = Served::leader().await;
    let mut peer = served.peer().await;
    peer.call("Event.Subscribe", json!({})).await;
    publish(&served.fake.hub, &[line("event", "x", 1)]);
    served.fake.hub.close();
    assert_eq!(peer.message().await.unwrap()["method"], "Event", "what was there comes first");
    assert_eq!(peer.message().await.unwrap()["method"], "Subscription.Ended");
    assert!(peer.call("Lease.Status", json!({})).await["result"].is_object(), "the connection goes on");

    served.fake.hub.reopen();
    peer.call("Event.Subscribe", json!({})).await;
    let drain = tokio::spawn(served.server.drain(PATIENCE));
    assert_eq!(peer.message().await.unwrap()["params"]["why"], "this instance is draining");
    assert_eq!(peer.message().await, None);
    drain.await.unwrap();
}
