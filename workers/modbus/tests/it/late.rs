//! Answers that come late, or from somebody else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use worker_contract::{Next, Reason};

use crate::support::{
    Host, Server, Step,
    server::{Asked, frame},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Registers 1 to 5, each in a station of its own, asked in turn at a fixed rate; then the answers are quick again.
async fn late_answers(late: u64, timeout: u64, every: u64) {
    let delay = Arc::new(AtomicU64::new(late));
    let server = Server::start({
        let delay = Arc::clone(&delay);
        move |asked| vec![Step::Wait(ms(delay.load(Ordering::SeqCst))), Step::Send(asked.answer())]
    })
    .await;
    let mut host = Host::connected(server.address, timeout).await;
    for register in 1..=5 {
        let point = format!("address = 'hr:{register}'\ndata_type = 'u16'");
        host.station(register, "unit_id = 1", &[point]);
    }
    let mut ticks = interval(ms(every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for register in 1..=5 {
        ticks.tick().await;
        let polled = host.poll(register).await;
        assert_eq!(polled.bad(), [(0, Reason::Timeout)].into(), "no point has another point's value");
        assert_eq!(polled.only_error().next, Next::Retry);
    }
    delay.store(0, Ordering::SeqCst);
    for register in (1..=5).chain(1..=5) {
        let polled = host.poll(register).await;
        assert_eq!(polled.ints(), [(0, i64::from(register))].into());
    }
    assert!(host.driver.traffic().dropped_frames >= 4, "late answers are counted: {:?}", host.driver.traffic());
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn m1_answers_500_ms_late_never_become_another_points_value() {
    late_answers(500, 300, 600).await;
}

#[tokio::test]
async fn m1_answers_that_come_while_the_next_one_is_awaited_never_become_its_value() {
    late_answers(300, 180, 210).await;
}

#[tokio::test]
async fn m7_a_silent_unit_costs_its_neighbours_neither_values_nor_the_connection() {
    let server = Server::start(|asked| if asked.unit == 2 { Vec::new() } else { asked.honest() }).await;
    let mut host = Host::connected(server.address, 100).await;
    for unit in 1..=4 {
        host.registers(unit, "", [unit as u16]);
    }
    for _ in 0..3 {
        for unit in [1, 2, 2, 2, 2, 3, 4] {
            let polled = host.poll(unit).await;
            if unit == 2 {
                assert_eq!(polled.bad(), [(0, Reason::Timeout)].into());
                assert_eq!(polled.only_error().next, Next::Retry);
            } else {
                assert_eq!(polled.ints(), [(0, i64::from(unit))].into());
            }
        }
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn m10_a_frame_from_another_unit_is_passed_over_and_the_right_one_is_taken() {
    let server = Server::start(|asked| {
        let foreign = |tid| Step::Send(frame(tid, 2, 5, &[3, 2, 0xBA, 0xD0]));
        vec![foreign(asked.tid), foreign(asked.tid.wrapping_add(1)), Step::Wait(ms(50)), Step::Send(asked.answer())]
    })
    .await;
    let mut host = Host::connected(server.address, 1000).await;
    host.registers(1, "", [42]);
    for _ in 0..3 {
        assert_eq!(host.poll(1).await.ints(), [(0, 42)].into());
    }
    assert_eq!(host.driver.traffic().dropped_frames, 6);
}

#[tokio::test]
async fn a_frame_that_waits_before_the_request_is_not_its_answer_even_with_the_right_identifier() {
    // The answer to request 0 brings along the answer to request 1, which was not asked yet.
    let server = Server::start(|asked| {
        let early = Asked { tid: asked.tid.wrapping_add(1), ..*asked }.frame(&[3, 2, 0xBA, 0xD0]);
        let extra = if asked.number == 0 { early } else { Vec::new() };
        vec![Step::Send([asked.answer(), extra].concat())]
    })
    .await;
    let mut host = Host::connected(server.address, 1000).await;
    host.registers(1, "", [7]);
    for _ in 0..2 {
        assert_eq!(host.poll(1).await.ints(), [(0, 7)].into());
    }
    assert_eq!(host.driver.traffic().dropped_frames, 1);
}

#[tokio::test]
async fn half_a_frame_survives_a_time_out_and_a_cancelled_request() {
    for cancelled in [false, true] {
        let server = Server::start(|asked| {
            let answer = asked.answer();
            let (head, tail) = answer.split_at(9);
            let pause = if asked.number == 0 { ms(300) } else { ms(0) };
            vec![Step::Send(head.to_vec()), Step::Wait(pause), Step::Send(tail.to_vec())]
        })
        .await;
        let mut host = Host::connected(server.address, if cancelled { 2000 } else { 150 }).await;
        host.registers(1, "", 10..14);
        if cancelled {
            let dropped = tokio::time::timeout(ms(150), host.poll(1)).await;
            assert!(dropped.is_err());
        } else {
            assert_eq!(host.poll(1).await.only_error().reason, Reason::Timeout);
        }
        tokio::time::sleep(ms(200)).await;
        assert_eq!(host.poll(1).await.ints(), [(0, 10), (1, 11), (2, 12), (3, 13)].into());
        assert_eq!((host.driver.traffic().dropped_frames, server.connections()), (1, 1));
    }
}

#[tokio::test]
async fn three_requests_without_a_byte_cost_the_connection() {
    let server = Server::start(|_| Vec::new()).await;
    let mut host = Host::connected(server.address, 20).await;
    host.registers(1, "", [1]);
    for want in [Next::Retry, Next::Retry, Next::Reconnect, Next::Retry] {
        let polled = host.poll(1).await;
        assert_eq!((polled.only_error().next, polled.only_error().reason), (want, Reason::Timeout));
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_peer_that_floods_frames_holds_no_request_beyond_its_deadline() {
    // As fast as the socket takes them, and at a slow drip.
    for drip in [ms(0), ms(5)] {
        let server = Server::start(move |asked| {
            let noise = frame(asked.tid.wrapping_sub(1), asked.unit, 5, &[3, 2, 0xBA, 0xD0]);
            let many = if drip.is_zero() { noise.repeat(1000) } else { noise };
            [Step::Send(many), Step::Wait(drip)].into_iter().cycle().take(200).collect()
        })
        .await;
        let mut host = Host::connected(server.address, 100).await;
        host.registers(1, "", [1]);
        let start = Instant::now();
        let polled = host.poll(1).await;
        assert!(start.elapsed() < ms(1000), "{:?}", start.elapsed());
        let error = polled.only_error();
        let want = if drip.is_zero() { (Next::Reconnect, Reason::Protocol) } else { (Next::Retry, Reason::Timeout) };
        assert_eq!((error.next, error.reason), want, "{error:?}");
    }
}
