use super::*;
use crate::control::{ChannelInfo, HEADER_LEN};

const TOKEN: &str = "correct horse";

fn known(token: &str) -> bool {
    token == TOKEN
}

/// Moves bytes both ways, `step` at a time, until nothing moves; answers Directory with one channel.
fn converse(client: &mut ClientSession, server: &mut ServerSession, step: usize) -> Vec<Reply> {
    let mut replies = Vec::new();
    let now = Nanos(1);
    for part in client.output().to_vec().chunks(step) {
        assert!(part.len() <= server.wants());
        server.on_bytes(part, now, 77, known);
        while let Some(request) = server.poll_request(now) {
            assert_eq!(request, Request::Directory);
            server.reply(&Reply::Directory { channels: vec![channel()] });
        }
    }
    client.sent();
    let output = server.output().to_vec();
    server.sent(output.len());
    for part in output.chunks(step) {
        client.on_bytes(part);
        while let Some(reply) = client.poll_reply().expect("frames") {
            replies.push(reply);
        }
    }
    replies
}

fn channel() -> ChannelInfo {
    ChannelInfo {
        name: "itch".into(),
        id: 3,
        lane: 0,
        epoch: 9,
        heartbeat_ns: 10_000_000,
        natural_start: false,
        shared_memory: None,
        udp: None,
        rdma: None,
        recovery: None,
    }
}

#[test]
fn a_known_peer_is_welcomed_and_answered_however_its_bytes_are_cut() {
    for step in [1, 3, 7, 1000] {
        let mut client = ClientSession::new(TOKEN, "a strategy\n");
        let mut server = ServerSession::new(Nanos(0));
        client.ask(&Request::Directory);
        let replies = converse(&mut client, &mut server, step);
        assert_eq!(replies, [Reply::Welcome { pid: 77 }, Reply::Directory { channels: vec![channel()] }]);
        assert!(server.is_identified() && server.closed().is_none());
        assert_eq!(server.peer(), "a strategy");
    }
}

#[test]
fn a_wrong_token_is_refused_without_a_hint_and_nothing_after_it_is_heard() {
    let mut client = ClientSession::new("correct house", "x");
    let mut server = ServerSession::new(Nanos(0));
    client.ask(&Request::Directory);
    let replies = converse(&mut client, &mut server, 1000);
    assert_eq!(replies, [Reply::Refused { why: "refused".into() }]);
    assert_eq!(server.closed(), Some(&Close::UnknownToken));
    server.on_bytes(&[1; 100], Nanos(2), 77, known);
    assert_eq!(server.poll_request(Nanos(2)), None);
}

#[test]
fn strangers_are_held_to_a_bound_in_time_and_memory() {
    let mut server = ServerSession::new(Nanos(0));
    server.on_bytes(b"GET / HTTP/1.1\r\n", Nanos(1), 77, known);
    assert_eq!(server.closed(), Some(&Close::Preface));

    let mut server = ServerSession::new(Nanos(0));
    assert_eq!(server.next_timeout(), Some(Nanos(HELLO_PATIENCE_NS)));
    server.on_bytes(&PREFACE[..5], Nanos(1), 77, known);
    server.on_timeout(Nanos(HELLO_PATIENCE_NS - 1));
    assert_eq!(server.closed(), None);
    server.on_timeout(Nanos(HELLO_PATIENCE_NS));
    assert_eq!(server.closed(), Some(&Close::TooSlow));

    // A gigabyte is announced: nothing is kept for it.
    let mut server = ServerSession::new(Nanos(0));
    server.on_bytes(&PREFACE, Nanos(1), 77, known);
    server.on_bytes(&(1u32 << 30).to_le_bytes(), Nanos(1), 77, known);
    assert!(
        matches!(server.closed(), Some(Close::Frame(FrameError::TooLong { announced, .. })) if *announced == 1 << 30)
    );

    // However much is sent, no more than a hello is asked for.
    let mut server = ServerSession::new(Nanos(0));
    server.on_bytes(&PREFACE, Nanos(1), 77, known);
    server.on_bytes(&(MAX_HELLO_LEN as u32).to_le_bytes(), Nanos(1), 77, known);
    server.on_bytes(&vec![b' '; server.wants() - PREFACE.len()], Nanos(1), 77, known);
    assert!(server.closed().is_some(), "blanks are no hello");
}

#[test]
fn asking_before_the_hello_or_saying_it_twice_ends_the_session() {
    let mut early = Vec::new();
    frame::write(&Request::Directory, &mut early);
    let mut server = ServerSession::new(Nanos(0));
    server.on_bytes(&[&PREFACE[..], &early].concat(), Nanos(1), 77, known);
    assert_eq!(server.closed(), Some(&Close::OutOfTurn));

    let mut client = ClientSession::new(TOKEN, "x");
    let mut server = ServerSession::new(Nanos(0));
    converse(&mut client, &mut server, 1000);
    client.ask(&Request::Hello { token: TOKEN.into(), name: "x".into() });
    server.on_bytes(client.output(), Nanos(1), 77, known);
    assert_eq!(server.poll_request(Nanos(1)), None);
    assert_eq!(server.closed(), Some(&Close::OutOfTurn));
}

#[test]
fn a_peer_that_does_not_read_its_answers_is_given_up() {
    let mut client = ClientSession::new(TOKEN, "x");
    let mut server = ServerSession::new(Nanos(0));
    converse(&mut client, &mut server, 1000);
    let long = Reply::Refused { why: "x".repeat(10_000) };
    let mut queued = 0;
    while server.closed().is_none() {
        server.reply(&long);
        queued += 1;
        assert!(queued < 100 && server.output().len() <= MAX_OUTPUT_LEN);
    }
    assert_eq!(server.closed(), Some(&Close::NotReading));
}

#[test]
fn an_identified_peer_that_says_nothing_for_long_is_let_go() {
    let mut client = ClientSession::new(TOKEN, "x");
    let mut server = ServerSession::new(Nanos(0));
    converse(&mut client, &mut server, 1000);
    server.on_timeout(Nanos(IDLE_PATIENCE_NS));
    assert_eq!(server.closed(), None);
    server.on_timeout(Nanos(IDLE_PATIENCE_NS + 1));
    assert_eq!(server.closed(), Some(&Close::Idle));
}

#[test]
fn hostile_bytes_never_panic_and_never_pass() {
    let mut state = 7u64;
    for seed in 0..20_000u64 {
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut bytes = ClientSession::new(TOKEN, "x").output().to_vec();
        // Damage anywhere behind the length of the hello, or anything at all.
        for _ in 0..1 + random() % 4 {
            let at = (random() as usize) % bytes.len();
            bytes[at] = random() as u8;
        }
        let mut server = ServerSession::new(Nanos(0));
        for part in bytes.chunks(1 + (random() as usize) % 16) {
            server.on_bytes(part, Nanos(1), 77, known);
        }
        if server.is_identified() {
            let body = String::from_utf8_lossy(&bytes[PREFACE.len() + HEADER_LEN..]).into_owned();
            assert!(body.contains(TOKEN), "round {seed}: identified by {body:?}");
        }
    }
}

#[test]
fn a_session_that_holds_something_is_not_ended_for_saying_nothing() {
    let mut client = ClientSession::new(TOKEN, "a strategy");
    let mut server = ServerSession::new(Nanos(0));
    converse(&mut client, &mut server, 1000);
    server.keep(true, Nanos(2));
    assert_eq!(server.next_timeout(), None);
    server.on_timeout(Nanos(10 * IDLE_PATIENCE_NS));
    assert_eq!(server.closed(), None);
    // Once it holds nothing any more it has the usual time.
    let now = Nanos(20 * IDLE_PATIENCE_NS);
    server.keep(false, now);
    server.on_timeout(now.plus(IDLE_PATIENCE_NS - 1));
    assert_eq!(server.closed(), None);
    server.on_timeout(now.plus(IDLE_PATIENCE_NS));
    assert_eq!(server.closed(), Some(&Close::Idle));
}
