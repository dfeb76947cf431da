//! [`Artifact`]: what Cargo says of a crate that it has built (`--message-format=json`).

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A crate that Cargo has built, or has found built.
pub struct Artifact {
    /// The name of the target.
    target: String,
    /// `bin`, `lib`, `test` and so on.
    kind: String,
    /// Whether it was compiled with its tests.
    pub is_test: bool,
    pub executable: Option<PathBuf>,
    /// The folder of the package.
    pub package: PathBuf,
    files: Vec<PathBuf>,
}

impl Artifact {
    /// Reads the messages of a build. Others are left out.
    pub fn read_all(messages: &[u8]) -> Vec<Artifact> {
        let lines = messages.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        messages.filter_map(|message| Artifact::read(&message)).collect()
    }

    fn read(message: &Value) -> Option<Artifact> {
        if message["reason"] != "compiler-artifact" {
            return None;
        }
        let target = &message["target"];
        let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(Artifact {
            target: target["name"].as_str()?.to_string(),
            kind: target["kind"][0].as_str()?.to_string(),
            is_test: message["profile"]["test"].as_bool()?,
            executable: message["executable"].as_str().map(PathBuf::from),
            package: Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf(),
            files: files.map(PathBuf::from).collect(),
        })
    }

    /// As a person would name it. A library and a program may have one name, so the kind is said of tests.
    pub fn name(&self, is_with_kind: bool) -> String {
        if is_with_kind { format!("{} ({})", self.target, self.kind) } else { self.target.clone() }
    }

    /// The list of the files that rustc has read. It stands beside the first file, without the `lib` of a library. `None` if Cargo
    /// keeps it elsewhere, as for a build script.
    pub fn dependency_list(&self) -> Option<PathBuf> {
        let file = self.files.first()?;
        let name = file.file_stem()?.to_str()?;
        let names = [Some(name), name.strip_prefix("lib")];
        let lists = names.into_iter().flatten().map(|name| file.with_file_name(format!("{name}.d")));
        lists.into_iter().find(|list| list.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_read_from_messages_and_others_left_out() {
        let messages = r#"{"reason":"build-finished","success":true}
no message
{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","target":{"kind":["test"],"name":"it"},"profile":{"test":true},"filenames":["/t/it-1"],"executable":"/t/it-1"}
{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","target":{"kind":["lib"],"name":"p"},"profile":{"test":false},"filenames":["/t/libp-1.rlib"],"executable":null}"#;
        let artifacts = Artifact::read_all(messages.as_bytes());
        let facts =
            artifacts.iter().map(|artifact| (artifact.name(true), artifact.is_test, artifact.executable.is_some()));
        let expected = [("it (test)".to_string(), true, true), ("p (lib)".to_string(), false, false)];
        assert_eq!(facts.collect::<Vec<_>>(), expected);
        assert_eq!(artifacts[0].package, Path::new("/p"));
    }

    #[test]
    fn the_list_of_a_program_and_of_a_library_stands_beside_its_first_file() {
        let folder = tempfile::tempdir().unwrap();
        let list_of = |file: &str| {
            let message = serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/p/Cargo.toml", "target": { "kind": ["lib"], "name": "p" },
                "profile": { "test": false }, "filenames": [folder.path().join(file)], "executable": null,
            });
            Artifact::read(&message).unwrap().dependency_list()
        };
        for list in ["p-1.d", "library-2.d"] {
            std::fs::write(folder.path().join(list), "").unwrap();
        }
        assert_eq!(list_of("libp-1.rlib"), Some(folder.path().join("p-1.d")));
        assert_eq!(list_of("library-2"), Some(folder.path().join("library-2.d")));
        assert_eq!(list_of("libabsent-3.rlib"), None);
    }
}
