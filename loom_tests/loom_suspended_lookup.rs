//! Model: a captured lookup is resumed while another lookup comes to the same generator, or while the generator fails.
//!
//! Runs `src/session/core/generator.rs` and `src/session/lookup/begin.rs`. Each lookup gets exactly one answer, whether
//! it comes before or after the resumption. If the generator fails, its error is the answer.
//!
//! Seeded bugs: `queued_behind_a_lookup_that_has_gone_on`, `resumed_over_a_failure`.

#![cfg(loom)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jittison::error::{Error, Result};
use jittison::session::*;
use loom::thread;
use support::*;

/// Captures its first lookup, and starts a thread that resumes it. Defines no name. With `fails`, returns an error as well.
struct Capturer {
    fails: bool,
    has_captured: AtomicBool,
    resumer: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Capturer {
    fn new(fails: bool) -> Arc<Capturer> {
        Arc::new(Capturer { fails, has_captured: AtomicBool::new(false), resumer: Mutex::new(None) })
    }

    fn join(&self) {
        let resumer = self.resumer.lock().unwrap().take();
        resumer.into_iter().for_each(|resumer| resumer.join().unwrap());
    }
}

impl DefinitionGenerator for Capturer {
    fn generate_or_suspend(&self, _: &JitDylib, _: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
        if !self.has_captured.swap(true, Ordering::Relaxed)
            && let Some(captured) = suspension.capture()
        {
            *self.resumer.lock().unwrap() = Some(thread::spawn(move || captured.resume(Ok(()))));
            return if self.fails { Err(Error::other("the generator failed")) } else { Ok(()) };
        }
        Ok(())
    }
}

type Answers = Arc<Mutex<Vec<&'static str>>>;

/// Looks up a name that nothing defines. Collects the answers.
fn look_up(fixture: &Fixture, name: &str) -> Answers {
    let answers = Answers::default();
    let received = answers.clone();
    fixture.session.lookup_then(
        &fixture.search_order(),
        &[SymbolRequest::required(name)],
        RequiredState::Ready,
        move |found| {
            received.lock().unwrap().push(found.map_or_else(|error| describe_kind(error.kind()), |_| "ready"));
        },
    );
    answers
}

#[test]
fn lookup_queued_behind_a_captured_one_versus_the_resumption() {
    let allowed = [(vec!["not found"], vec!["not found"])];
    explore("lookup_queued_behind_a_captured_one_versus_the_resumption", None, 10, allowed, || {
        let (fixture, capturer) = (Fixture::new(), Capturer::new(false));
        fixture.main.add_generator(capturer.clone());
        let (first, second) = (look_up(&fixture, "f"), look_up(&fixture, "g"));
        capturer.join();
        let all = |answers: &Answers| answers.lock().unwrap().clone();
        (all(&first), all(&second))
    });
}

#[test]
fn generator_that_captures_and_fails_versus_the_resumption() {
    let allowed = [vec!["another error"]];
    explore("generator_that_captures_and_fails_versus_the_resumption", None, 4, allowed, || {
        let (fixture, capturer) = (Fixture::new(), Capturer::new(true));
        fixture.main.add_generator(capturer.clone());
        let answers = look_up(&fixture, "f");
        capturer.join();
        let answers = answers.lock().unwrap().clone();
        answers
    });
}
