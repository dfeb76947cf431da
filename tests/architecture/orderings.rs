//! Checks that each memory ordering of shipped code names its pair.
//!
//! An acquire without a release, or the other way round, orders nothing, and on x86-64 no test shows it. So a comment at each such
//! ordering says which access it *pairs with*. It stands in one of two places:
//!
//! | place | for |
//! |---|---|
//! | in the function of the access, above it or on its line; the function's own doc counts | any access or fence |
//! | at the declaration of the field or the static, above it or on its line | all its accesses in the file |
//!
//! Modules under `#[cfg(test)]` are left out.

use std::collections::BTreeSet;

use crate::reading::*;

const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
const PAIR: &str = "pairs with";

/// One line for each access or fence whose pair no comment names.
pub fn ordering_faults(file: &str, text: &str) -> Vec<String> {
    let layers = layers(text);
    let source = Source { code: layers.code.lines().collect(), comments: layers.comments.lines().collect() };
    let tokens = bare(&tokens(&layers.code), true);
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut faults = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_ordering = at >= 2 && word(at - 1) == "::" && word(at - 2) == "Ordering";
        if !is_ordering || !ORDERINGS.contains(&word(at)) {
            continue;
        }
        let function = (0..at).rev().find(|&from| word(from) == "fn" && is_word(word(from + 1)));
        let start = source.first_line_above(function.map_or(1, |function| tokens[function].line));
        let is_named_there = source.names_a_pair(start, token.line);
        if !is_named_there && !receiver(&tokens, at).is_some_and(|name| source.declaration_names_a_pair(name)) {
            faults.insert((token.line, word(at).to_string()));
        }
    }
    let fault = |(line, ordering)| {
        format!(
            "{file}:{line}: no comment says what this `{ordering}` pairs with. Mend: write `// Pairs with the … in …` above it, or \
             in the doc of the field; if it has no pair, it orders nothing, and `Relaxed` is right"
        )
    };
    faults.into_iter().map(fault).collect()
}

/// The field or the static of the access whose ordering is at index `at`: `count` of `self.count.load(Ordering::Acquire)`.
fn receiver(tokens: &[Token], at: usize) -> Option<&str> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    // The method is before the bracket that encloses the ordering.
    let open = (0..at).rev().find(|&open| text(open) == "(" && closing(tokens, open) > at)?;
    let mut last = open.checked_sub(3).filter(|_| text(open - 2) == ".")?;
    while matches!(text(last), "]" | ")") {
        last = (0..last)
            .rev()
            .find(|&open| matches!(text(open), "[" | "(") && closing(tokens, open) == last)?
            .checked_sub(1)?;
    }
    Some(text(last))
}

/// The code and the comments of a file by line.
struct Source<'a> {
    code: Vec<&'a str>,
    comments: Vec<&'a str>,
}

impl Source<'_> {
    /// The first of the lines with comments or attributes directly above a line. Lines count from 1.
    fn first_line_above(&self, line: usize) -> usize {
        let is_above = |line: usize| {
            let code = self.code.get(line - 1).map_or("", |code| code.trim());
            let is_comment = code.is_empty() && self.comments.get(line - 1).is_some_and(|text| !text.trim().is_empty());
            is_comment || code.starts_with("#[")
        };
        (1..line).rev().take_while(|line| is_above(*line)).last().unwrap_or(line)
    }

    fn names_a_pair(&self, first: usize, last: usize) -> bool {
        let words = self.comments[first - 1..last].iter().flat_map(|comment| comment.split_whitespace());
        let words: Vec<String> =
            words.filter(|word| word.chars().any(char::is_alphanumeric)).map(str::to_lowercase).collect();
        words.join(" ").contains(PAIR)
    }

    /// Whether the doc of a field or a static of this name names a pair.
    fn declaration_names_a_pair(&self, name: &str) -> bool {
        let is_of_name = |mark: char| mark.is_alphanumeric() || mark == '_';
        let declares = |code: &str| {
            let before = code.split_once(": ").map_or("", |(before, _)| before.trim());
            let first = before.split_whitespace().next().unwrap_or_default();
            before.rsplit(|mark| !is_of_name(mark)).next() == Some(name) && !matches!(first, "let" | "fn" | "const")
        };
        let lines = (1..).zip(&self.code).filter(|(_, code)| declares(code)).map(|(line, _)| line);
        lines.map(|line| (self.first_line_above(line), line)).any(|(first, line)| self.names_a_pair(first, line))
    }
}

#[test]
fn each_ordering_of_shipped_code_names_its_pair() {
    let root = crate::tree::root();
    let crates = std::fs::read_dir(root.join("crates")).expect("crates can be read");
    let crates = crates.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let shipped = crates.filter(|name| name.starts_with("jittison")).map(|name| format!("crates/{name}/src"));
    let folders: Vec<String> = shipped.filter(|folder| root.join(folder).is_dir()).chain(["src".to_string()]).collect();
    assert!(folders.len() > 3, "the crates have gone");
    let files = folders.iter().flat_map(|folder| rust_files_of(folder));
    crate::tree::report(files.flat_map(|(file, text)| ordering_faults(&file, &text)).collect());
}

/// Without files that are test modules.
fn rust_files_of(folder: &str) -> impl Iterator<Item = (String, String)> {
    let files = crate::tree::rust_files(&crate::tree::root(), folder);
    files.into_iter().filter(|(file, _)| !file.ends_with("/tests.rs") && !file.contains("/tests/"))
}

#[test]
fn an_ordering_without_a_pair_is_seen_and_one_with_a_pair_is_not() {
    let lines = |text: &str| {
        let faults = ordering_faults("src/a.rs", text);
        let line = |fault: &String| fault.split(':').nth(1).and_then(|line| line.parse::<usize>().ok());
        faults.iter().map(|fault| line(fault).expect("a line number")).collect::<Vec<_>>()
    };
    assert_eq!(lines("fn f() {\n    word.load(Ordering::Acquire);\n    fence(Ordering::SeqCst);\n}"), [2, 3]);
    assert_eq!(lines("fn f() {\n    // Pairs with the store in `g`.\n    word.load(Ordering::Acquire);\n}"), []);
    assert_eq!(lines("/// Pairs\n/// with `g`.\n#[inline]\nfn f() {\n    word.load(Ordering::Acquire);\n}"), []);
    let other = "// Pairs with the store in `g`.\nfn f() {}\nfn h() {\n    word.load(Ordering::Acquire);\n}";
    assert_eq!(lines(other), [4], "the comment is at another function");
    let field = "struct A {\n    /// Stores are Release; each pairs with a load.\n    word: AtomicU8,\n    other: AtomicU8,\n}\n";
    let accesses =
        "fn f() {\n    self.word.store(g(0), Ordering::Release);\n    self.other[h(1)].store(1, Ordering::Release);\n}";
    assert_eq!(lines(&format!("{field}{accesses}")), [8]);
    let many = "/// Pairs with the load.\nstatic WORDS: [AtomicU8; 2] = [const { AtomicU8::new(0) }; 2];\nfn f() {\n    WORDS[at(0)].store(1, Ordering::Release);\n}";
    assert_eq!(lines(many), []);
    let test = "#[cfg(test)]\nmod tests {\n    fn f() { word.load(Ordering::SeqCst); }\n}\nfn f() { a.cmp(b) == Ordering::Less; \"Ordering::Acquire\"; }";
    assert_eq!(lines(test), []);
}
