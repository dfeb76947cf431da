//! Rust source as text: without comments and literals, as tokens, as paths. Macros are not expanded.

/// The code and the comments of a source text. Blanks replace everything else, so each character keeps its line and column.
/// Literals are in neither part. The `b` before a literal counts as code, which no inspector looks for.
pub struct Layers {
    pub code: String,
    pub comments: String,
}

pub fn layers(text: &str) -> Layers {
    #[derive(PartialEq)]
    enum Kind {
        Code,
        Comment,
        Literal,
    }
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\n');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let starts_word = |i: usize| i == 0 || !word(at(i - 1));
    let find =
        |from: usize, what: &dyn Fn(usize) -> bool| (from..chars.len()).find(|&i| what(i)).unwrap_or(chars.len());
    let (mut code, mut comments) = (String::new(), String::new());
    let mut i = 0;
    while i < chars.len() {
        let (kind, end) = match at(i) {
            '/' if at(i + 1) == '/' => (Kind::Comment, find(i, &|j| at(j) == '\n')),
            '/' if at(i + 1) == '*' => {
                let (mut depth, mut j) = (1, i + 2);
                while depth > 0 && j < chars.len() {
                    match (at(j), at(j + 1)) {
                        ('/', '*') => (depth, j) = (depth + 1, j + 2),
                        ('*', '/') => (depth, j) = (depth - 1, j + 2),
                        _ => j += 1,
                    }
                }
                (Kind::Comment, j)
            }
            '"' => {
                let mut j = i + 1;
                while j < chars.len() && at(j) != '"' {
                    j += if at(j) == '\\' { 2 } else { 1 };
                }
                (Kind::Literal, j + 1)
            }
            // r"…", r#"…"#, and the same after b or c; r#name is code.
            'r' if starts_word(i) || (matches!(at(i - 1), 'b' | 'c') && starts_word(i - 1)) => {
                let quote = find(i + 1, &|j| at(j) != '#');
                let hashes = quote - i - 1;
                let closes = |j: usize| at(j) == '"' && (1..=hashes).all(|k| at(j + k) == '#');
                match at(quote) {
                    '"' => (Kind::Literal, find(quote + 1, &closes) + 1 + hashes),
                    _ => (Kind::Code, i + 1),
                }
            }
            '\'' if at(i + 1) == '\\' => (Kind::Literal, find(i + 3, &|j| at(j) == '\'') + 1),
            '\'' if at(i + 2) == '\'' => (Kind::Literal, i + 3),
            _ => (Kind::Code, i + 1),
        };
        for &c in &chars[i..end.min(chars.len())] {
            let keep = |wanted: Kind| if c == '\n' || kind == wanted { c } else { ' ' };
            code.push(keep(Kind::Code));
            comments.push(keep(Kind::Comment));
        }
        i = end;
    }
    Layers { code, comments }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub line: usize,
    pub text: String,
}

/// Words, `::` and single marks.
pub fn tokens(code: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (line, row) in (1..).zip(code.lines()) {
        let mut rest = row.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match rest.find(|c| !word(c)).unwrap_or(rest.len()) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                length => length,
            };
            let text = rest[..length].to_string();
            tokens.push(Token { line, text });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// The index of the bracket that closes the one at `open`, or the number of tokens if none does.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    tokens.len()
}

/// The tokens without attributes. `without_tests` also leaves out the inline modules under `#[cfg(test)]` or
/// `#[cfg(all(test, …))]`.
pub fn bare(tokens: &[Token], without_tests: bool) -> Vec<Token> {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let (mut kept, mut for_tests, mut i) = (Vec::new(), false, 0);
    while i < tokens.len() {
        let open = i + if text(i + 1) == "!" { 2 } else { 1 };
        if text(i) == "#" && text(open) == "[" {
            let end = closing(tokens, open);
            let said: String = (open..end).map(text).collect();
            for_tests |= said == "[cfg(test)" || said.starts_with("[cfg(all(test,");
            i = end + 1;
            continue;
        }
        if for_tests && without_tests {
            let mut at = i + usize::from(text(i) == "pub");
            if at > i && text(at) == "(" {
                at = closing(tokens, at) + 1;
            }
            if text(at) == "mod" && text(at + 2) == "{" {
                i = closing(tokens, at + 2) + 1;
                for_tests = false;
                continue;
            }
        }
        for_tests = false;
        kept.push(tokens[i].clone());
        i += 1;
    }
    kept
}

/// The code of a file as tokens, without attributes.
pub fn code(text: &str, without_tests: bool) -> Vec<Token> {
    bare(&tokens(&layers(text).code), without_tests)
}

#[derive(Debug, PartialEq)]
pub struct NamedPath {
    pub line: usize,
    pub segments: Vec<String>,
    /// The number of inline modules of its file that contain it.
    pub depth: usize,
}

pub fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Every path of two or more names, and for each leaf of a `use` tree its full path.
pub fn named_paths(tokens: &[Token]) -> Vec<NamedPath> {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let mut paths = Vec::new();
    // For each open brace, whether it opens a module.
    let mut braces: Vec<bool> = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let depth = braces.iter().filter(|&&module| module).count();
        match text(i) {
            "{" => braces.push(i >= 2 && text(i - 2) == "mod"),
            "}" => drop(braces.pop()),
            "use" if is_word(text(i + 1)) || matches!(text(i + 1), "::" | "{") => {
                i = use_tree(tokens, i + 1, &[], depth, &mut paths);
                continue;
            }
            word if is_word(word) => {
                let start = i;
                while text(i + 1) == "::" && is_word(text(i + 2)) {
                    i += 2;
                }
                let continues =
                    start >= 2 && text(start - 1) == "::" && (is_word(text(start - 2)) || text(start - 2) == ">");
                if i > start && !continues {
                    let segments = (start..=i).step_by(2).map(|i| text(i).to_string()).collect();
                    let line = tokens[start].line;
                    paths.push(NamedPath { line, segments, depth });
                }
            }
            _ => {}
        }
        i += 1;
    }
    paths
}

/// Reads one branch of a `use` tree from index `from`. Returns the index of the token after it.
pub fn use_tree(tokens: &[Token], from: usize, prefix: &[String], depth: usize, paths: &mut Vec<NamedPath>) -> usize {
    let mut segments = prefix.to_vec();
    let mut i = from;
    while let Some(token) = tokens.get(i) {
        match token.text.as_str() {
            "{" => {
                i += 1;
                while i < tokens.len() && !matches!(tokens[i].text.as_str(), "}" | ";") {
                    let comma = usize::from(tokens[i].text == ",");
                    i = use_tree(tokens, i + comma, &segments, depth, paths);
                }
                return i + 1;
            }
            "}" | "," | ";" => break,
            "as" => i += 1,
            name if is_word(name) || name == "*" => segments.push(name.to_string()),
            _ => {}
        }
        i += 1;
    }
    if segments.len() > prefix.len() {
        let line = tokens[from].line;
        paths.push(NamedPath { line, segments, depth });
    }
    i
}
