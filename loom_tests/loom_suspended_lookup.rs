//! Every interleaving of a captured lookup's resumption with what comes to the same generator meanwhile.
//!
//! Checks `src/session/lookup/search.rs`: each lookup gets one answer, whether it comes ahead of the word to go on or behind it, and
//! a generator that fails has the last word.

#![cfg(loom)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jittison::error::{Error, Result};
use jittison::session::*;
use loom::thread;
use support::*;

/// Captures the first lookup that comes to it, and gives it to a thread that resumes it; knows no name.
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
            return if self.fails { Err(Error::other("no")) } else { Ok(()) };
        }
        Ok(())
    }
}

type Answers = Arc<Mutex<Vec<&'static str>>>;

/// Asks for a name that nobody knows; what was said of it.
fn ask(scene: &Scene, name: &str) -> Answers {
    let answers = Answers::default();
    let said = answers.clone();
    scene.session.lookup_then(&scene.order(), &[SymbolRequest::required(name)], RequiredState::Ready, move |found| {
        said.lock().unwrap().push(found.map_or_else(|error| word(error.kind()), |_| "ready"));
    });
    answers
}

#[test]
fn a_lookup_that_comes_behind_a_captured_one_versus_its_resumption() {
    let allowed = [(vec!["not found"], vec!["not found"])];
    explore("a_lookup_that_comes_behind_a_captured_one_versus_its_resumption", None, 10, allowed, || {
        let (scene, capturer) = (Scene::new(), Capturer::new(false));
        scene.main.add_generator(capturer.clone());
        let (first, second) = (ask(&scene, "f"), ask(&scene, "g"));
        capturer.join();
        let told = |answers: &Answers| answers.lock().unwrap().clone();
        (told(&first), told(&second))
    });
}

#[test]
fn a_generator_that_fails_after_it_has_captured_versus_the_resumption() {
    let allowed = [vec!["another error"]];
    explore("a_generator_that_fails_after_it_has_captured_versus_the_resumption", None, 4, allowed, || {
        let (scene, capturer) = (Scene::new(), Capturer::new(true));
        scene.main.add_generator(capturer.clone());
        let answers = ask(&scene, "f");
        capturer.join();
        let told = answers.lock().unwrap().clone();
        told
    });
}
