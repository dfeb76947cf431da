//! The pages. Edit them while the server runs.
//!
//! Try: another text; a new page in `answer`; a `panic!` in one; an error that the compiler finds; another field in `Site`, which is
//! refused, because the one in `main` has the old layout.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the pages share.
pub struct Site {
    pages: Vec<Box<dyn Page + Sync>>,
}

/// A page.
pub trait Page {
    fn path(&self) -> &str;
    fn show(&self, visits: u64) -> String;
}

/// How often pages were asked for. It keeps its value.
static VISITS: AtomicU64 = AtomicU64::new(0);

pub fn site() -> Site {
    Site { pages: vec![Box::new(Home), Box::new(Squares { count: 5 })] }
}

pub fn answer(site: &Site, path: &str) -> String {
    let visits = VISITS.fetch_add(1, Ordering::Relaxed) + 1;
    match site.pages.iter().find(|page| page.path() == path) {
        Some(page) => page.show(visits),
        None => format!("there is no {path}\n"),
    }
}

/// Called each second by a thread of its own.
pub fn tick(second: u64) {
    if second % 10 == 0 {
        println!("up for {second} s, {} visits", VISITS.load(Ordering::Relaxed));
    }
}

struct Home;

impl Page for Home {
    fn path(&self) -> &str {
        "/"
    }

    fn show(&self, visits: u64) -> String {
        format!("hello, visitor {visits}\n")
    }
}

struct Squares {
    count: u64,
}

impl Page for Squares {
    fn path(&self) -> &str {
        "/squares"
    }

    fn show(&self, _: u64) -> String {
        let squares: Vec<String> = (1..=self.count).map(|n| (n * n).to_string()).collect();
        format!("{}\n", squares.join(" "))
    }
}
