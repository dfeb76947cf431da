//! The scenarios of ORC. Each figure of a round is a run of its program.

use std::path::Path;
use std::rc::Rc;

use crate::measure::rows::{self, against_a_thousand};
use crate::measure::scenario::{Key, Measures, Scenario, Unit};
use crate::measure::workload::{LIVE_WHILE_GROWING, MAX_MAPPED, Workload};
use crate::measure::workload_scenario::scenario;
use crate::peers::orc::{Orc, set_ups};

/// Empty, with a message, if the program is not built.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    let set_ups = set_ups(peers);
    if set_ups.is_empty() {
        eprintln!("skipped: ORC (run crates/bench/peers/install and build)");
    }
    set_ups.iter().flat_map(|orc| scenarios_of(workload, orc)).collect()
}

fn scenarios_of(workload: &Rc<Workload>, orc: &Orc) -> Vec<Box<dyn Scenario>> {
    let of = |group, round: fn(&Orc, &Workload) -> Measures| {
        let orc = orc.clone();
        scenario(group, orc.competitor, workload, move |workload| round(&orc, workload))
    };
    vec![
        of("link, small", link_small),
        of("link, medium", link_medium),
        of("remove", remove),
        of("churn", churn),
        of("threads", threads),
        of("lookup", lookups),
        of("patch, swap", swaps),
        of("dylib", dylibs),
        of("memory manager", memory_manager),
        of("memory, live", memory),
        of("memory, growth", growth),
    ]
}

fn link_small(orc: &Orc, workload: &Workload) -> Measures {
    let figures = orc.run("link", workload.small_file()?, workload.sizes.small_links, 0)?;
    let mut measures = vec![
        figures.nanoseconds("add", rows::LINK_SMALL.by(orc.competitor))?,
        figures.nanoseconds("remove", rows::REMOVE_SMALL.by(orc.competitor))?,
    ];
    if orc.counts_allocations() {
        measures.push(figures.measure("allocations", rows::ALLOCATIONS.by(orc.competitor), Unit::Count)?);
    }
    let cold = orc.run("cold", workload.small_file()?, workload.sizes.small_links, 0)?;
    measures.push(cold.nanoseconds("add", rows::LINK_SMALL_COLD.by(orc.competitor))?);
    Ok(measures)
}

fn link_medium(orc: &Orc, workload: &Workload) -> Measures {
    let keys = [rows::LINK_MEDIUM.by(orc.competitor), rows::REMOVE_MEDIUM.by(orc.competitor)];
    let mut measures = links(orc, workload.medium_file()?, workload.sizes.medium_links, keys)?;
    let (live, replaced) = workload.sizes.medium_replaced();
    let figures = orc.run("remove", workload.medium_file()?, replaced, live)?;
    measures.push(figures.nanoseconds("link", rows::MEDIUM_AGAIN.by(orc.competitor))?);
    let cold = orc.run("cold", workload.medium_file()?, workload.sizes.medium_links, 0)?;
    measures.push(cold.nanoseconds("add", rows::LINK_MEDIUM_COLD.by(orc.competitor))?);
    Ok(measures)
}

/// Links of the objects in a file, and their removals.
pub fn links(orc: &Orc, objects: &Path, count: usize, [link, remove]: [Key; 2]) -> Measures {
    let figures = orc.run("link", objects, count, 0)?;
    Ok(vec![figures.nanoseconds("add", link)?, figures.nanoseconds("remove", remove)?])
}

fn remove(orc: &Orc, workload: &Workload) -> Measures {
    removals(orc, workload, workload.small_file()?)
}

/// Removals of the objects in a file.
pub fn removals(orc: &Orc, workload: &Workload, objects: &Path) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.removals_beside.iter().filter(|live| **live <= MAX_MAPPED) {
        let figures = orc.run("remove", objects, workload.sizes.removals, *live)?;
        measures.push(figures.nanoseconds("remove", rows::REMOVE.at(*live, orc.competitor))?);
        measures.push(figures.nanoseconds("link", rows::LINK_BESIDE.at(*live, orc.competitor))?);
    }
    measures.extend(against_a_thousand(&measures, orc.competitor));
    Ok(measures)
}

fn churn(orc: &Orc, workload: &Workload) -> Measures {
    churns(orc, workload, workload.small_file()?)
}

/// Replacements of the objects in a file.
pub fn churns(orc: &Orc, workload: &Workload, objects: &Path) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.churns_of {
        let figures = orc.run("churn", objects, workload.sizes.churns, *live)?;
        measures.push(figures.measure("rate", rows::CHURN_RATE.at(*live, orc.competitor), Unit::PerSecond)?);
        measures.push(figures.nanoseconds("operation", rows::CHURN.at(*live, orc.competitor))?);
    }
    Ok(measures)
}

fn threads(orc: &Orc, workload: &Workload) -> Measures {
    let figures = orc.run("threads", workload.small_file()?, workload.sizes.thread_churns, 0)?;
    Ok(vec![
        figures.measure("one", rows::ONE_THREAD.by(orc.competitor), Unit::PerSecond)?,
        figures.measure("two", rows::TWO_THREADS.by(orc.competitor), Unit::PerSecond)?,
        figures.measure("ratio", rows::THREADS.by(orc.competitor), Unit::Ratio)?,
        figures.measure("shared", rows::SHARED_DYLIB.by(orc.competitor), Unit::Ratio)?,
    ])
}

fn lookups(orc: &Orc, workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    for symbols in workload.sizes.lookups_among {
        let figures = orc.run("lookup", workload.small_file()?, workload.sizes.lookups, *symbols)?;
        measures.push(figures.nanoseconds("one", rows::LOOKUP.at(*symbols, orc.competitor))?);
        measures.push(figures.nanoseconds("two", rows::LOOKUP_TWO.at(*symbols, orc.competitor))?);
        measures.push(figures.measure("ratio", rows::LOOKUP_THREADS.at(*symbols, orc.competitor), Unit::Ratio)?);
        // ORC has one call, which returns an address that keeps nothing.
        measures.push(figures.nanoseconds("one", rows::HANDLE.at(*symbols, orc.competitor))?);
        measures.push(figures.measure("ratio", rows::HANDLE_THREADS.at(*symbols, orc.competitor), Unit::Ratio)?);
    }
    Ok(measures)
}

fn swaps(orc: &Orc, workload: &Workload) -> Measures {
    let figures = orc.run("swap", workload.small_file()?, workload.sizes.swaps, 0)?;
    Ok(vec![
        figures.nanoseconds("redirect", rows::REDIRECT.by(orc.competitor))?,
        figures.nanoseconds("swap", rows::SWAP.by(orc.competitor))?,
    ])
}

fn dylibs(orc: &Orc, workload: &Workload) -> Measures {
    let figures = orc.run("dylib", workload.small_file()?, workload.sizes.swaps, 0)?;
    Ok(vec![
        figures.nanoseconds("dylib", rows::DYLIB.by(orc.competitor))?,
        figures.nanoseconds("tracker", rows::TRACKER.by(orc.competitor))?,
    ])
}

fn memory_manager(orc: &Orc, workload: &Workload) -> Measures {
    let figures = orc.run("manager", workload.small_file()?, workload.sizes.swaps, 0)?;
    Ok(vec![figures.nanoseconds("manager", rows::MANAGER.by(orc.competitor))?])
}

fn memory(orc: &Orc, workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.residents.iter().filter(|live| **live <= MAX_MAPPED) {
        let figures = orc.run("resident", workload.small_file()?, 0, *live)?;
        measures.push(figures.measure("bytes", rows::RESIDENT.at(*live, orc.competitor), Unit::Bytes)?);
        measures.push(figures.measure("rss", rows::RSS.at(*live, orc.competitor), Unit::Bytes)?);
        measures.push(figures.measure("left", rows::LEFTOVER.at(*live, orc.competitor), Unit::Bytes)?);
        measures.push(figures.measure("mappings", rows::MAPPINGS.at(*live, orc.competitor), Unit::Count)?);
    }
    Ok(measures)
}

fn growth(orc: &Orc, workload: &Workload) -> Measures {
    let figures = orc.run("growth", workload.small_file()?, workload.sizes.churns, LIVE_WHILE_GROWING)?;
    Ok(vec![figures.measure("growth", rows::GROWTH.by(orc.competitor), Unit::Bytes)?])
}
