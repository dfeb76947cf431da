//! Materialisation on worker threads: every number of workers gives the same results, nothing deadlocks, and a panic fails only
//! its own unit (ORC: CoreAPIsTest).

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn session(worker_threads: usize) -> (ExecutionSession, JitDylib) {
    let session = ExecutionSession::with_options(SessionOptions { worker_threads, ..SessionOptions::default() });
    let main = session.create_dylib("main").unwrap();
    (session, main)
}

/// A unit that looks up `next` and is emitted with a dependency on it.
fn link(name: &str, next: &str) -> Unit {
    let next = next.to_string();
    Unit::exported(&[name], move |r| {
        r.notify_resolved(|_| Some(address(1))).unwrap();
        r.lookup(&[SymbolRequest::required(&next)], RequiredState::Resolved, |r, found| {
            r.notify_emitted(found.unwrap().into_iter().filter_map(|result| result.symbol).collect()).unwrap();
        });
    })
}

/// A unit that blocks in a lookup of `next` while it materialises.
fn blocking(session: &ExecutionSession, main: &JitDylib, name: &str, next: &str) -> Unit {
    let (session, main, next) = (session.clone(), main.clone(), next.to_string());
    Unit::exported(&[name], move |r| {
        let found = find_in(&session, &[&main], &next).unwrap();
        drop(session);
        finish(r, found + 1);
    })
}

/// Looks up names from a thread that only waits and runs no units meanwhile.
fn find_passively(session: &ExecutionSession, main: &JitDylib, names: &[&str]) -> Result<Vec<u64>, Error> {
    let (send, receive) = mpsc::channel();
    let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
    let order = [(main.clone(), Visibility::All)];
    session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| send.send(outcome).unwrap());
    let found = receive.recv_timeout(Duration::from_secs(60)).expect("no deadlock")?;
    Ok(found.iter().map(|result| result.address.value()).collect())
}

#[test]
fn a_blocking_lookup_works_with_any_number_of_workers() {
    for workers in [0, 1, 2, 4] {
        let (session, main) = session(workers);
        let here = thread::current().id();
        let elsewhere = Arc::new(AtomicUsize::new(0));
        let count = elsewhere.clone();
        main.define(Unit::exported(&["foo", "bar"], move |r| {
            count.fetch_add(usize::from(thread::current().id() != here), Ordering::SeqCst);
            finish(r, 1);
        }))
        .unwrap();
        assert_eq!(find_in(&session, &[&main], "foo").unwrap(), 1);
        assert_eq!(find_in(&session, &[&main], "bar").unwrap(), 1);
        if workers == 0 {
            assert_eq!(elsewhere.load(Ordering::SeqCst), 0, "without workers, the calling thread does the work");
        }
    }
}

#[test]
fn dismissed_workers_end_when_idle_and_new_ones_start_for_new_work() {
    let (session, main) = session(4);
    session.dismiss_workers();
    for round in 0..20 {
        let names: Vec<String> = (0..10).map(|number| format!("f{round}_{number}")).collect();
        let workers = Arc::new(Mutex::new(Vec::new()));
        for name in &names {
            let workers = workers.clone();
            let work = move |r| {
                workers.lock().unwrap().push(std::fs::read_link("/proc/thread-self").unwrap());
                finish(r, 1);
            };
            main.define(Unit::exported(&[name], work)).unwrap();
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(find_passively(&session, &main, &names).unwrap(), [1; 10]);
        session.dismiss_workers();
        let (workers, since) = (workers.lock().unwrap().clone(), Instant::now());
        assert_eq!(workers.len(), 10);
        // The kernel needs a moment to remove the threads.
        while workers.iter().any(|worker| PathBuf::from("/proc").join(worker).exists()) {
            assert!(since.elapsed() < Duration::from_secs(60), "a dismissed worker still exists");
        }
    }
}

#[test]
fn a_worker_that_dismisses_workers_does_not_wait_for_itself() {
    let (session, main) = session(2);
    let own = session.clone();
    let work = move |r| {
        own.dismiss_workers();
        drop(own);
        finish(r, 1);
    };
    main.define(Unit::exported(&["foo"], work)).unwrap();
    assert_eq!(find_passively(&session, &main, &["foo"]).unwrap(), [1]);
}

#[test]
fn many_threads_and_many_workers_materialise_each_unit_once() {
    for workers in [1, 2, 4] {
        let (session, main) = session(workers);
        let (runs, count) = (Arc::new(AtomicUsize::new(0)), sized(200, 8));
        for i in 0..count {
            let runs = runs.clone();
            main.define(Unit::exported(&[&format!("f{i}")], move |r| {
                runs.fetch_add(1, Ordering::SeqCst);
                finish(r, i + 1);
            }))
            .unwrap();
        }
        thread::scope(|scope| {
            for start in 0..4 {
                let (session, main) = (&session, &main);
                scope.spawn(move || {
                    for i in (0..count).map(|i| (i * 7 + start * 50) % count) {
                        assert_eq!(find_in(session, &[main], &format!("f{i}")).unwrap(), i + 1);
                    }
                });
            }
        });
        assert_eq!(runs.load(Ordering::SeqCst) as u64, count);
    }
}

#[test]
fn a_chain_of_two_thousand_units_that_look_up_the_next_needs_no_deep_stack() {
    for workers in [1, 4] {
        let (session, main) = session(workers);
        let length = sized(2_000, 10);
        for i in 0..length {
            main.define(link(&format!("f{i}"), &format!("f{}", i + 1))).unwrap();
        }
        main.define(Unit::ready(&[&format!("f{length}")], 7)).unwrap();
        assert_eq!(find_passively(&session, &main, &["f0"]).unwrap(), [1]);
        assert_eq!(find_in(&session, &[&main], &format!("f{}", length - 1)).unwrap(), 1);
    }
}

#[test]
fn blocking_lookups_nest_with_one_worker() {
    for workers in [0, 1] {
        let (session, main) = session(workers);
        for i in 0..20 {
            main.define(blocking(&session, &main, &format!("f{i}"), &format!("f{}", i + 1))).unwrap();
        }
        main.define(Unit::ready(&["f20"], 1)).unwrap();
        assert_eq!(find_in(&session, &[&main], "f0").unwrap(), 21);
        main.define(blocking(&session, &main, "g0", "g1")).unwrap();
        main.define(Unit::ready(&["g1"], 1)).unwrap();
        assert_eq!(find_passively(&session, &main, &["g0"]).unwrap(), [2]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "lowers a limit of the process")]
fn work_runs_on_the_calling_thread_if_no_worker_can_be_started() {
    own_process!();
    let (session, main) = session(2);
    let done_by = Arc::new(Mutex::new(None));
    let recorder = done_by.clone();
    main.define(Unit::exported(&["foo"], move |r| {
        *recorder.lock().unwrap() = Some(thread::current().id());
        finish(r, 1);
    }))
    .unwrap();
    // Less address space than the stack of a thread needs.
    let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = mapped.split_whitespace().next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: (pages << 12) + (512 << 10), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: lowers a limit of this process, which runs only this test.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    assert!(thread::Builder::new().spawn(|| ()).is_err(), "a thread starts despite the limit");
    let found = find_passively(&session, &main, &["foo"]);
    // SAFETY: as above; restores the limit.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..limit }) };
    assert_eq!(found.unwrap(), [1]);
    assert_eq!(*done_by.lock().unwrap(), Some(thread::current().id()));
}

#[test]
fn a_worker_that_has_waited_counts_as_running_again() {
    let (session, main) = session(1);
    main.define(Unit::ready(&["leaf"], 1)).unwrap();
    main.define(blocking(&session, &main, "waits", "leaf")).unwrap();
    assert_eq!(find_passively(&session, &main, &["waits"]).unwrap(), [2]);
    // From now on, one unit runs at a time.
    let (running, maximum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let names: Vec<String> = (0..6).map(|number| format!("f{number}")).collect();
    for name in &names {
        let (running, maximum) = (running.clone(), maximum.clone());
        let unit = Unit::exported(&[name], move |r| {
            maximum.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(sized(10, 1)));
            running.fetch_sub(1, Ordering::SeqCst);
            finish(r, 1);
        });
        main.define(unit).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    find_passively(&session, &main, &names).unwrap();
    assert_eq!(maximum.load(Ordering::SeqCst), 1);
}

#[test]
fn a_waiting_unit_is_not_blocked_by_a_unit_that_waits_for_it() {
    // `user` blocks in a lookup of `low`, and `top` in a lookup of `user`. Symptom: the thread that waited for `low` ran `top` on
    // the stack of `user`, and neither could continue. The lookup requests one to three names, in several orders. It requests
    // `low` only if it requests all three.
    for workers in [0, 1, 2] {
        for order in [["user", "top", "low"], ["user", "low", "top"], ["top", "user", "low"], ["low", "top", "user"]] {
            for count in 1..=3 {
                let (session, main) = session(workers);
                main.define(blocking(&session, &main, "user", "low")).unwrap();
                main.define(blocking(&session, &main, "top", "user")).unwrap();
                main.define(Unit::ready(&["low"], 1)).unwrap();
                let names: Vec<&str> =
                    order.into_iter().filter(|name| count == 3 || *name != "low").take(count).collect();
                let (done, is_done) = mpsc::channel();
                let names: Vec<String> = names.into_iter().map(String::from).collect();
                thread::spawn(move || {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    done.send(find_passively(&session, &main, &names).unwrap().len()).unwrap();
                });
                let found = is_done.recv_timeout(Duration::from_secs(60));
                assert_eq!(found, Ok(count), "{workers} workers, {order:?}");
            }
        }
    }
}

#[test]
fn a_unit_that_panics_on_a_worker_fails_its_symbols_and_the_worker_lives_on() {
    let (session, main) = session(1);
    for i in 0..3 {
        main.define(Unit::exported(&["bad"], |_| panic!("unit"))).unwrap();
        let error = find_passively(&session, &main, &["bad"]).unwrap_err();
        assert_eq!(failed_symbols(&error), ["bad"]);
        let name = format!("good{i}");
        main.define(Unit::ready(&[&name], 1)).unwrap();
        assert_eq!(find_passively(&session, &main, &[&name]).unwrap(), [1]);
    }
}

#[test]
fn a_panic_does_not_reach_a_thread_that_waits_for_something_else() {
    // Symptom: a waiting thread ran a queued unit and unwound with its panic.
    let (session, main) = session(1);
    for i in 0..sized(200, 5) {
        let (good, bad) = (format!("good{i}"), format!("bad{i}"));
        main.define(Unit::exported(&[&bad], |_| panic!("unit"))).unwrap();
        main.define(Unit::ready(&[&good], 1)).unwrap();
        let order = [(main.clone(), Visibility::All)];
        let answer = Answer::default();
        session.lookup_then(&order, &[SymbolRequest::required(&bad)], RequiredState::Ready, answer.callback());
        assert_eq!(find_in(&session, &[&main], &good).unwrap(), 1);
    }
}

#[test]
fn a_panic_of_one_unit_does_not_fail_another_that_waits_on_the_same_thread() {
    let (session, main) = session(0);
    main.define(blocking(&session, &main, "user", "low")).unwrap();
    main.define(Unit::exported(&["bad"], |_| panic!("unit"))).unwrap();
    main.define(Unit::ready(&["low"], 1)).unwrap();
    let order = [(main.clone(), Visibility::All)];
    let answer = Answer::default();
    let all = ["user", "bad", "low"].map(SymbolRequest::required);
    let _panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        session.lookup_then(&order, &all, RequiredState::Ready, answer.callback());
    }));
    // The failure comes from another thread if `user` waited first.
    assert_eq!(failed_symbols(&wait_for(|| (!answer.is_pending()).then(|| answer.error()))), ["bad"]);
    assert_eq!(find_in(&session, &[&main], "user").unwrap(), 2);
}

#[test]
fn a_requested_symbol_that_is_replaced_runs_on_a_worker() {
    let (session, main) = session(1);
    let (pass, passed) = mpsc::channel();
    main.define(Unit::exported(&["foo", "bar"], move |r| pass.send(r).unwrap())).unwrap();
    let order = [(main.clone(), Visibility::All)];
    let requests = ["foo", "bar"].map(SymbolRequest::required);
    let (send, receive) = mpsc::channel();
    session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| send.send(outcome).unwrap());
    let mut r = passed.recv_timeout(Duration::from_secs(60)).unwrap();
    let here = thread::current().id();
    r.replace(Unit::exported(&["bar"], move |r| {
        assert_ne!(thread::current().id(), here);
        finish(r, 2);
    }))
    .unwrap();
    finish(r, 1);
    let found = receive.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(2)));
}

/// Removes a pinned tracker and drops the pin. Returns whether the reclaim thread frees it within half a minute.
fn is_reclaimed_in_background(fixture: &Fixture, resource: u64) -> bool {
    let tracker = fixture.loaded("foo", resource);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    drop(pin);
    removal.wait_until(Instant::now() + Duration::from_secs(30)).unwrap() && fixture.manager.take_freed() == [resource]
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_forked_child_reclaims_in_the_background_although_it_lacks_the_thread_of_its_parent() {
    own_process!();
    let fixture = Fixture::with_policy(ReclaimPolicy::Background);
    assert!(is_reclaimed_in_background(&fixture, 1));
    // The reclaim thread must sleep at the fork: the child would inherit a lock that it holds.
    wait_for(|| other_threads_sleep().then_some(()));
    // SAFETY: the child runs this closure and ends. This process runs only this test.
    let child = match unsafe { libc::fork() } {
        0 => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                assert!((2..5).all(|resource| is_reclaimed_in_background(&fixture, resource)));
                fixture.session.end().unwrap();
            }));
            // SAFETY: ends the child here.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: the kernel writes `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    assert!(is_reclaimed_in_background(&fixture, 5), "in the parent");
}

/// Whether each thread of this process but the calling one waits in the kernel.
fn other_threads_sleep() -> bool {
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap()).all(|task| {
        // A thread that has just ended has no file any more.
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { return true };
        // The state follows the name, which is in parentheses and may contain any character.
        let state = stat.rsplit(") ").next().unwrap().chars().next();
        task.file_name() == own.file_name().unwrap() || state == Some('S')
    })
}

/// Polls until there is a value.
fn wait_for<T>(poll: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn ending_the_session_stops_its_workers() {
    for by_drop in [false, true] {
        let (session, main) = session(3);
        let threads = Arc::new(Mutex::new(Vec::<PathBuf>::new()));
        for i in 0..30 {
            let threads = threads.clone();
            main.define(Unit::exported(&[&format!("f{i}")], move |r| {
                threads.lock().unwrap().push(std::fs::read_link("/proc/thread-self").unwrap());
                finish(r, 1);
            }))
            .unwrap();
            find_passively(&session, &main, &[&format!("f{i}")]).unwrap();
        }
        if by_drop {
            drop(session)
        } else {
            session.end().unwrap()
        }
        let threads = std::mem::take(&mut *threads.lock().unwrap());
        assert!(!threads.is_empty());
        for thread in threads {
            let task = PathBuf::from("/proc").join(thread);
            wait_for(|| (!task.exists()).then_some(()));
        }
    }
}

#[test]
fn a_unit_queued_when_its_session_ends_is_dropped_and_its_lookup_is_answered() {
    let (session, main) = session(1);
    let (gate, opened) = mpsc::channel::<()>();
    main.define(Unit::exported(&["slow"], move |r| {
        opened.recv().unwrap();
        drop(r);
    }))
    .unwrap();
    let log = Log::default();
    main.define(Unit::exported(&["queued"], drop).logging(&log)).unwrap();
    let answer = Answer::of(&session, &main, &["slow", "queued"], RequiredState::Ready);
    session.end().unwrap();
    assert!(matches!(answer.error().kind(), ErrorKind::FailedToMaterialize { .. }));
    gate.send(()).unwrap();
    wait_for(|| log.take().contains(&"drop unit of queued".to_string()).then_some(()));
}

#[test]
fn a_replacement_worker_ends_when_the_waiting_worker_continues() {
    let (session, main) = session(1);
    let (send, receive) = mpsc::channel();
    main.define(Unit::exported(&["awaited"], move |r| {
        send.send((std::fs::read_link("/proc/thread-self").unwrap(), r)).unwrap();
    }))
    .unwrap();
    let (release, is_released) = mpsc::channel::<()>();
    let (inner, dylib) = (session.clone(), main.clone());
    main.define(Unit::exported(&["waits"], move |r| {
        find_in(&inner, &[&dylib], "awaited").unwrap();
        drop((inner, dylib));
        // Runs until the other worker has ended.
        is_released.recv().unwrap();
        finish(r, 2);
    }))
    .unwrap();
    let answer = Answer::of(&session, &main, &["waits"], RequiredState::Ready);
    let (other, awaited) = receive.recv_timeout(Duration::from_secs(60)).unwrap();
    // Lets the other worker fall asleep. A worker that is still awake after this ends by itself, and the test passes, too.
    thread::sleep(Duration::from_millis(100));
    finish(awaited, 1);
    let other = PathBuf::from("/proc").join(other);
    wait_for(|| (!other.exists()).then_some(()));
    assert!(answer.is_pending());
    release.send(()).unwrap();
    wait_for(|| (!answer.is_pending()).then_some(()));
}
