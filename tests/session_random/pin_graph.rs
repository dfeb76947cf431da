//! Random references, handles, guards, removals and transfers of few trackers, so that many of them form rings. After each step,
//! a tracker is reclaimed exactly if the naive closure finds that nothing leads to it.

use std::collections::BTreeSet;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;

use crate::{Choices, STEPS};

const DYLIBS: usize = 3;
const TRACKERS: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Live,
    Merged(usize),
    /// Removed. Whether it waits for the guard.
    Removed {
        is_guarded: bool,
    },
    Reclaimed,
}

struct Node {
    tracker: ResourceTracker,
    dylib: usize,
    name: String,
    symbol: SymbolRef,
    status: Status,
    /// The indices of the nodes that this one refers to.
    refers_to: BTreeSet<usize>,
    pins: Vec<Pin>,
    removal: Option<Removal>,
}

struct Graph {
    dylibs: Vec<JitDylib>,
    nodes: Vec<Node>,
    created: usize,
    choices: Choices,
    is_guarded: bool,
    reclaimed_in_rings: usize,
}

/// Runs one seed. Returns how many trackers were reclaimed that referred to each other.
pub fn run(seed: u64) -> usize {
    let session = ExecutionSession::new();
    let dylibs = (0..DYLIBS).map(|number| session.create_dylib(&format!("dylib {number}")).unwrap()).collect();
    let choices = Choices::new(seed);
    let mut graph = Graph { dylibs, nodes: Vec::new(), created: 0, choices, is_guarded: false, reclaimed_in_rings: 0 };
    let mut guard = None;
    for _ in 0..STEPS / 5 {
        match graph.choices.below(40) {
            0 => {
                guard = match guard {
                    None => Some(session.guard()),
                    Some(_) => None,
                };
                graph.is_guarded = guard.is_some();
                if !graph.is_guarded {
                    graph.leave_guard();
                }
            }
            _ => graph.step(),
        }
        graph.check();
        graph.forget_reclaimed();
    }
    drop(guard);
    graph.reclaimed_in_rings
}

impl Graph {
    fn step(&mut self) {
        match self.choices.below(12) {
            0 | 1 => self.create(),
            2..=4 => self.refer(),
            5 => self.pin(),
            6 | 7 => self.unpin(),
            8 | 9 => self.remove(),
            10 => self.transfer(),
            _ => self.remove_several(),
        }
    }

    fn create(&mut self) {
        if self.nodes.len() >= TRACKERS {
            return self.remove();
        }
        let dylib = self.choices.below(DYLIBS);
        self.created += 1;
        let name = format!("symbol {}", self.created);
        let tracker = self.dylibs[dylib].create_tracker().unwrap();
        let made = tracker.define_materializing("unit", [(Name::new(&name), SymbolFlags::EXPORTED)]).unwrap();
        made.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
        made.notify_emitted(Vec::new()).unwrap();
        let found = self.dylibs[dylib].lookup(&[SymbolRequest::required(&name)], RequiredState::Ready).unwrap();
        let symbol = found[0].symbol.clone().unwrap();
        let (status, refers_to) = (Status::Live, BTreeSet::new());
        self.nodes.push(Node { tracker, dylib, name, symbol, status, refers_to, pins: Vec::new(), removal: None });
    }

    fn some_node(&mut self) -> Option<usize> {
        (!self.nodes.is_empty()).then(|| self.choices.below(self.nodes.len()))
    }

    fn current(&self, mut index: usize) -> usize {
        while let Status::Merged(into) = self.nodes[index].status {
            index = into;
        }
        index
    }

    fn refer(&mut self) {
        let (Some(from), Some(to)) = (self.some_node(), self.some_node()) else { return };
        let (from, target) = (self.current(from), self.current(to));
        let pin = match (self.nodes[from].status, self.nodes[from].pins.first()) {
            (Status::Live, _) => self.dylibs[self.nodes[from].dylib].pin(&self.nodes[from].name).unwrap().1,
            (_, Some(pin)) => pin.clone(),
            _ => return,
        };
        let is_added = pin.add_dependency(&self.nodes[to].symbol).is_ok();
        drop(pin);
        let is_there = from != target && self.nodes[from].refers_to.contains(&target);
        assert!(is_added || self.nodes[target].status != Status::Live, "a reference to live code is accepted");
        assert!(!is_added || is_there || from == target || self.nodes[target].status == Status::Live);
        if is_added && from != target {
            self.nodes[from].refers_to.insert(target);
        }
    }

    fn pin(&mut self) {
        let Some(index) = self.some_node() else { return };
        let pin = match self.choices.below(3) {
            0 => self.nodes[index].pins.first().cloned(),
            _ => self.nodes[index].tracker.watch().pin(),
        };
        let current = self.current(index);
        let Some(pin) = pin else {
            let is_free = matches!(self.nodes[current].status, Status::Reclaimed);
            assert!(is_free || self.nodes[index].pins.is_empty(), "a tracker that is not reclaimed can be pinned");
            return;
        };
        let pin = if self.choices.one_in(3) { pin.into_revocable("a reason") } else { pin };
        self.nodes[current].pins.push(pin);
    }

    fn unpin(&mut self) {
        let pinned: Vec<_> = (0..self.nodes.len()).filter(|index| !self.nodes[*index].pins.is_empty()).collect();
        if !pinned.is_empty() {
            let index = *self.choices.of(&pinned);
            let pin = self.choices.below(self.nodes[index].pins.len());
            drop(self.nodes[index].pins.swap_remove(pin));
        }
    }

    fn removed(&mut self, index: usize, removal: Removal) {
        if self.nodes[index].status == Status::Live {
            self.nodes[index].status = Status::Removed { is_guarded: self.is_guarded };
            self.nodes[index].removal = Some(removal);
        }
    }

    fn remove(&mut self) {
        let Some(index) = self.some_node() else { return };
        let index = self.current(index);
        let removal = self.nodes[index].tracker.remove().unwrap();
        self.removed(index, removal);
    }

    fn remove_several(&mut self) {
        let Some(first) = self.some_node() else { return };
        let first = self.current(first);
        let mut indices = BTreeSet::from([first]);
        if self.choices.one_in(2) {
            while let Some(more) = self.some_node().filter(|_| !self.choices.one_in(3)) {
                indices.insert(self.current(more));
            }
            let trackers: Vec<_> = indices.iter().map(|index| self.nodes[*index].tracker.clone()).collect();
            let removals = ResourceTracker::remove_all(&trackers).unwrap();
            indices.into_iter().zip(removals).for_each(|(index, removal)| self.removed(index, removal));
        } else {
            self.nodes[first].tracker.remove_cascade().unwrap();
            loop {
                let leads = |node: &Node| node.refers_to.iter().any(|to| indices.contains(to));
                let more: Vec<_> = (0..self.nodes.len()).filter(|index| leads(&self.nodes[*index])).collect();
                if more.iter().all(|index| !indices.insert(*index)) {
                    break;
                }
            }
            for index in indices {
                if !matches!(self.nodes[index].status, Status::Merged(_)) {
                    let removal = self.nodes[index].tracker.remove().unwrap();
                    self.removed(index, removal);
                }
            }
        }
    }

    fn transfer(&mut self) {
        let (Some(source), Some(destination)) = (self.some_node(), self.some_node()) else { return };
        let is_possible = source != destination
            && self.nodes[source].dylib == self.nodes[destination].dylib
            && [source, destination].iter().all(|index| self.nodes[*index].status == Status::Live);
        if !is_possible {
            return;
        }
        let into = self.nodes[destination].tracker.clone();
        self.nodes[source].tracker.transfer_to(&into).unwrap();
        self.nodes[source].status = Status::Merged(destination);
        let (pins, refers_to) =
            (std::mem::take(&mut self.nodes[source].pins), std::mem::take(&mut self.nodes[source].refers_to));
        self.nodes[destination].pins.extend(pins);
        self.nodes[destination].refers_to.extend(refers_to);
        for node in &mut self.nodes {
            if node.refers_to.remove(&source) {
                node.refers_to.insert(destination);
            }
        }
        self.nodes[destination].refers_to.remove(&destination);
    }

    fn leave_guard(&mut self) {
        for node in &mut self.nodes {
            if let Status::Removed { is_guarded } = &mut node.status {
                *is_guarded = false;
            }
        }
    }

    /// The nodes that a root leads to, and the roots.
    fn held(&self) -> BTreeSet<usize> {
        let is_root = |node: &Node| match node.status {
            Status::Live => true,
            Status::Removed { is_guarded } => is_guarded || !node.pins.is_empty(),
            Status::Merged(_) | Status::Reclaimed => false,
        };
        let mut unvisited: Vec<_> = (0..self.nodes.len()).filter(|index| is_root(&self.nodes[*index])).collect();
        let mut held = BTreeSet::new();
        while let Some(index) = unvisited.pop() {
            if held.insert(index) {
                unvisited.extend(&self.nodes[index].refers_to);
            }
        }
        held
    }

    fn check(&mut self) {
        let held = self.held();
        let free: BTreeSet<_> = (0..self.nodes.len())
            .filter(|index| matches!(self.nodes[*index].status, Status::Removed { .. }) && !held.contains(index))
            .collect();
        for index in &free {
            let node = &self.nodes[*index];
            let removal = node.removal.as_ref().unwrap();
            assert!(removal.is_complete(), "nothing leads to `{}`: {removal:?}", node.name);
            self.reclaimed_in_rings +=
                usize::from(node.refers_to.iter().any(|to| self.nodes[*to].refers_to.contains(index)));
        }
        for index in free {
            self.nodes[index].status = Status::Reclaimed;
            self.nodes[index].refers_to.clear();
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if let (Status::Removed { .. }, Some(removal)) = (node.status, &node.removal) {
                assert!(!removal.is_complete(), "`{}` is held", node.name);
                let dependants = self.nodes.iter().filter(|other| other.refers_to.contains(&index)).count();
                assert_eq!(removal.blockers(), (node.pins.len(), dependants), "{removal:?}");
            }
        }
    }

    /// Forgets reclaimed nodes that no merged node leads to.
    fn forget_reclaimed(&mut self) {
        for index in (0..self.nodes.len()).rev() {
            let into = self.nodes.iter().any(|node| node.status == Status::Merged(index));
            let is_over = match self.nodes[index].status {
                Status::Reclaimed => !into,
                Status::Merged(_) => !into && self.choices.one_in(4),
                _ => false,
            };
            if is_over {
                self.forget(index);
            }
        }
    }

    fn forget(&mut self, index: usize) {
        let last = self.nodes.len() - 1;
        self.nodes.swap_remove(index);
        for node in &mut self.nodes {
            if node.refers_to.remove(&last) {
                node.refers_to.insert(index);
            }
            if node.status == Status::Merged(last) {
                node.status = Status::Merged(index);
            }
        }
    }
}
