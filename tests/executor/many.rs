//! One process that links for several executors of different kinds.

use std::sync::Barrier;

use jittison::executor::ExecutorProcess;
use jittison::{ErrorKind, Jit};
use jittison_cache::ObjectCache;

use crate::far::{Listening, TOKEN};
use crate::{c, start};

/// A module of C by number. Its function returns the number, and counts its calls.
fn module(number: u64) -> Option<Vec<u8>> {
    c(&format!("static long calls; long run(void) {{ return ++calls * 1000 + {number}; }}"))
}

/// Links a module in a dylib of its own, calls it twice, and removes it.
fn run(jit: &Jit, objects: &ObjectCache<u64>, number: u64) -> jittison::error::Result<()> {
    let object = objects.get_or_compile(&number, || Ok(module(number).unwrap().into()))?;
    let dylib = jit.create_dylib(&format!("module {number}"))?;
    let tracker = dylib.create_tracker()?;
    jit.add_object(&tracker, "module.o", object)?;
    // SAFETY: the function has this signature.
    let run = unsafe { jit.lookup_in::<extern "C" fn() -> i64>(&dylib, "run") }?;
    assert_eq!(run.try_call()?, 1000 + number as i64);
    assert_eq!(run.try_call()?, 2000 + number as i64);
    drop(run);
    assert!(tracker.remove()?.is_complete());
    jit.session().remove_dylib(&dylib)?;
    Ok(())
}

#[test]
fn executors_of_each_kind_share_compiled_objects_and_the_end_of_one_is_none_of_the_others() {
    if module(0).is_none() {
        return;
    }
    const MODULES: u64 = 8;
    let objects = ObjectCache::new(1 << 20);
    let listening = [Listening::start(), Listening::start()];
    let connect = |there: &Listening| ExecutorProcess::connect(there.address, TOKEN).unwrap();
    let executors = [start(), start(), connect(&listening[0]), connect(&listening[1])];
    let session = |executor: &ExecutorProcess| Jit::builder().executor(executor).build().unwrap();
    // A session for each executor, a second one for the first, and one of this process.
    let mut sessions: Vec<Jit> = executors.iter().chain([&executors[0]]).map(session).collect();
    sessions.push(Jit::builder().build().unwrap());

    let begin = Barrier::new(sessions.len());
    std::thread::scope(|scope| {
        for jit in &sessions {
            scope.spawn(|| {
                begin.wait();
                (0..MODULES).for_each(|number| run(jit, &objects, number).unwrap());
            });
        }
    });
    assert_eq!((objects.misses(), objects.hits()), (MODULES, MODULES * (sessions.len() as u64 - 1)));
    assert!(sessions.iter().all(|jit| jit.memory_statistics().live_bytes == 0));

    executors[1].kill().unwrap();
    executors[2].kill().unwrap();
    for (number, jit) in sessions.iter().enumerate() {
        match run(jit, &objects, 1) {
            Ok(()) => assert!(![1, 2].contains(&number)),
            Err(error) => assert!(
                [1, 2].contains(&number) && matches!(error.kind(), ErrorKind::ExecutorEnded { .. }),
                "{number}: {error}"
            ),
        }
    }
}
