//! `jittison inspect`: sections, symbols and relocations of an object, and the memory that a link of it would allocate.
//!
//! The library's own pipeline reads and plans the object, up to the point where a link would allocate memory. So the output
//! is what a link would do, and `inspect` refuses what a link would refuse.

use std::collections::HashMap;

use jittison::InputFile;
use jittison::base::SegmentKind;
use jittison::link::{
    Block, BlockId, Definition, GraphSymbol, InitializerKind, LinkGraph, ObjectBuffer, ObjectInterface, PlannedLink,
    SymbolIndex,
};
use serde_json::{Value, json};

use crate::args::InspectArgs;
use crate::output::{escape_controls, message_of, print_result};
use crate::table::Table;

/// Prints the description of one object.
pub fn inspect(args: &InspectArgs) -> Result<(), String> {
    let name = args.object.display().to_string();
    let bytes = InputFile::open(&args.object).and_then(|file| file.read()).map_err(message_of)?;
    let size_bytes = bytes.len();
    let interface = ObjectInterface::scan(&name, &bytes).map_err(|error| error.to_string())?;
    // Plan as if no other object defined any of its symbols.
    let planned = PlannedLink::plan(name.as_str().into(), ObjectBuffer::from(bytes), |_| true, |_| Ok(()));
    let planned = planned.map_err(|error| error.to_string())?;
    let exported = interface.symbols.iter().map(|symbol| (symbol.name.as_str(), symbol.is_exported)).collect();
    let view = View { name: &name, size_bytes, planned: &planned, graph: planned.graph(), exported };
    let text = if args.json { view.json()? } else { view.text() };
    print_result(&text)
}

/// An object, and how its facts are printed.
struct View<'a> {
    name: &'a str,
    size_bytes: usize,
    planned: &'a PlannedLink,
    graph: &'a LinkGraph,
    /// The global symbols that it defines, and whether other dylibs see them.
    exported: HashMap<&'a str, bool>,
}

/// The facts about a symbol, in words.
struct SymbolFacts<'a> {
    name: &'a str,
    size: u64,
    binding: &'static str,
    visibility: &'static str,
    place: SymbolPlace,
}

/// Where a symbol is defined.
enum SymbolPlace {
    Section(BlockId, u64),
    Absolute(u64),
    Undefined,
    NotInMemory,
}

impl View<'_> {
    fn json(&self) -> Result<String, String> {
        let sections: Vec<Value> = self.sections().map(|(id, block)| self.section_json(id, block)).collect();
        let symbols: Vec<Value> = self.graph.symbols().map(|(index, symbol)| self.symbol_json(index, symbol)).collect();
        let initializers: Vec<Value> = self
            .initializers()
            .into_iter()
            .map(|(section, kind, priority, functions)| {
                json!({ "section": section, "kind": kind, "priority": priority, "functions": functions })
            })
            .collect();
        let undefined: Vec<Value> = self
            .planned
            .externals()
            .map(|external| json!({ "name": external.name, "is_required": external.required }))
            .collect();
        let plan = self.planned.segment_plan();
        let segments: Vec<Value> = SegmentKind::ALL
            .into_iter()
            .map(|pool| {
                let segment = plan.segment(pool);
                json!({
                    "pool": pool.name(),
                    "size_bytes": segment.size,
                    "align_bytes": segment.align,
                    "zero_fill_bytes": segment.zero_fill,
                })
            })
            .collect();
        let root = json!({
            "object": self.name,
            "size_bytes": self.size_bytes,
            "sections": sections,
            "symbols": symbols,
            "initializers": initializers,
            "undefined": undefined,
            "plan": {
                "segments": segments,
                "got_slots": self.planned.got_slot_count(),
                "stubs": self.planned.stub_count(),
                "frames": plan.frame_count,
            },
        });
        Ok(serde_json::to_string_pretty(&root).map_err(|error| error.to_string())? + "\n")
    }

    fn text(&self) -> String {
        let machine = match self.graph.machine() {
            62 => "x86-64",
            183 => "AArch64",
            _ => "unknown",
        };
        let mut text = format!("{}: {} bytes, ELF64 {machine} relocatable\n", self.name, self.size_bytes);
        let mut part = |title: &str, body: &str| {
            text.push('\n');
            text.push_str(title);
            text.push('\n');
            text.push_str(body);
        };
        part("Sections in memory, with their offsets in the segment of their pool", &self.sections_table().text());
        part("Symbols", &self.symbols_table().text());
        for (id, _) in self.sections().filter(|(id, _)| !self.graph.edges(*id).is_empty()) {
            let title = format!(
                "Relocations of {} ({})",
                escape_controls(self.graph.block_name(id)),
                self.graph.edges(id).len()
            );
            part(&title, &self.relocations_table(id).text());
        }
        part("Initialisers and finalisers", &self.initializers_table().text());
        part("Undefined symbols: a link looks them up", &self.undefined_table().text());
        part("Memory that a link would allocate", &(self.plan_table().text() + &self.plan_notes()));
        text
    }

    /// The blocks of the object, without those that the linker makes.
    fn sections(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.graph.blocks().filter(|(_, block)| !block.is_synthetic())
    }

    fn section_json(&self, id: BlockId, block: &Block) -> Value {
        let relocations: Vec<Value> = self
            .graph
            .edges(id)
            .iter()
            .map(|edge| {
                json!({
                    "offset": edge.offset,
                    "type": self.graph.relocation_name(edge.kind),
                    "symbol_index": edge.symbol.index(),
                    "symbol": self.symbol_label(edge.symbol),
                    "addend": edge.addend,
                })
            })
            .collect();
        json!({
            "index": id.index(),
            "name": self.graph.block_name(id),
            "size_bytes": block.size,
            "align_bytes": block.align,
            "pool": block.pool.name(),
            "offset_in_segment": block.offset(),
            "has_own_mapping": block.is_large(),
            "is_zero_fill": block.is_zero_fill(),
            "relocations": relocations,
        })
    }

    fn sections_table(&self) -> Table {
        let mut table = Table::new(
            &["no.", "bytes", "align", "pool", "at", "relocations", "content", "section"],
            &["no.", "bytes", "align", "at", "relocations"],
        );
        for (id, block) in self.sections() {
            table.row(vec![
                id.index().to_string(),
                block.size.to_string(),
                block.align.to_string(),
                block.pool.name().to_string(),
                if block.is_large() { "own mapping".to_string() } else { format!("{:#x}", block.offset()) },
                self.graph.edges(id).len().to_string(),
                if block.is_zero_fill() { "zeroes" } else { "bytes" }.to_string(),
                escape_controls(self.graph.block_name(id)),
            ]);
        }
        table
    }

    fn facts<'a>(&'a self, index: SymbolIndex, symbol: &GraphSymbol) -> SymbolFacts<'a> {
        let name = self.graph.symbol_name(index);
        if name == "_GLOBAL_OFFSET_TABLE_" {
            // The object leaves it undefined; the link defines it.
            let (visibility, place) = ("", SymbolPlace::Undefined);
            return SymbolFacts { name, size: symbol.size, binding: "global", visibility, place };
        }
        let binding = match (symbol.is_local(), symbol.is_weak()) {
            (true, _) => "local",
            (_, true) => "weak",
            _ => "global",
        };
        let visibility = match (self.exported.get(name), symbol.definition) {
            _ if symbol.is_local() => "",
            (Some(true), _) => "exported",
            (Some(false), _) => "hidden",
            // Global in the object, but other objects cannot refer to it (`DW.ref.*`).
            (None, Definition::Block(..)) => "private",
            (None, _) => "",
        };
        let place = match symbol.definition {
            Definition::Block(block, offset) => SymbolPlace::Section(block, offset),
            Definition::Absolute(value) => SymbolPlace::Absolute(value),
            Definition::External => SymbolPlace::Undefined,
            Definition::Nowhere => SymbolPlace::NotInMemory,
        };
        SymbolFacts { name, size: symbol.size, binding, visibility, place }
    }

    fn symbol_json(&self, index: SymbolIndex, symbol: &GraphSymbol) -> Value {
        let facts = self.facts(index, symbol);
        let (place, section, value) = match facts.place {
            SymbolPlace::Section(block, offset) => ("section", Some(self.graph.block_name(block)), Some(offset)),
            SymbolPlace::Absolute(value) => ("absolute", None, Some(value)),
            SymbolPlace::Undefined => ("undefined", None, None),
            SymbolPlace::NotInMemory => ("not in memory", None, None),
        };
        json!({
            "index": index.index(),
            "name": facts.name,
            "binding": facts.binding,
            "visibility": facts.visibility,
            "size_bytes": facts.size,
            "place": place,
            "section": section,
            "value": value,
        })
    }

    /// The symbols that have a name. Symbols for sections and source files are in the JSON only.
    fn symbols_table(&self) -> Table {
        let mut table = Table::new(&["bytes", "binding", "visibility", "where", "symbol"], &["bytes"]);
        for (index, symbol) in self.graph.symbols() {
            let facts = self.facts(index, symbol);
            if facts.name.is_empty() || matches!(facts.place, SymbolPlace::NotInMemory) {
                continue;
            }
            table.row(vec![
                facts.size.to_string(),
                facts.binding.to_string(),
                facts.visibility.to_string(),
                place_text(&facts.place),
                escape_controls(facts.name),
            ]);
        }
        table
    }

    /// The name of a symbol. For a section symbol, which has no name: the name of the section.
    fn symbol_label(&self, index: SymbolIndex) -> String {
        let name = self.graph.symbol_name(index);
        match self.graph.definition(index) {
            Definition::Block(block, _) if name.is_empty() => self.graph.block_name(block).to_string(),
            _ => name.to_string(),
        }
    }

    fn relocations_table(&self, id: BlockId) -> Table {
        let mut table = Table::new(&["offset", "type", "symbol and addend"], &["offset"]);
        for edge in self.graph.edges(id) {
            let sign = if edge.addend < 0 { '-' } else { '+' };
            let symbol = escape_controls(&self.symbol_label(edge.symbol));
            table.row(vec![
                format!("{:#x}", edge.offset),
                self.graph.relocation_name(edge.kind).to_string(),
                format!("{symbol} {sign} {:#x}", edge.addend.unsigned_abs()),
            ]);
        }
        table
    }

    fn initializers(&self) -> Vec<(&str, &'static str, u32, u64)> {
        let lists = self.graph.blocks().filter_map(|(id, block)| Some((id, block, block.initializer_list()?)));
        let facts = lists.map(|(id, block, (kind, priority))| {
            let kind = match kind {
                InitializerKind::Init => "initialiser",
                InitializerKind::Fini => "finaliser",
            };
            (self.graph.block_name(id), kind, priority, block.size / 8)
        });
        facts.collect()
    }

    fn initializers_table(&self) -> Table {
        let mut table = Table::new(&["section", "kind", "priority", "functions"], &["priority", "functions"]);
        for (section, kind, priority, functions) in self.initializers() {
            table.row(vec![escape_controls(section), kind.to_string(), priority.to_string(), functions.to_string()]);
        }
        table
    }

    fn undefined_table(&self) -> Table {
        let mut table = Table::new(&["symbol", ""], &[]);
        for external in self.planned.externals() {
            let note = if external.required { "" } else { "weak: null if not found" };
            table.row(vec![escape_controls(external.name), note.to_string()]);
        }
        table
    }

    fn plan_table(&self) -> Table {
        let mut table = Table::new(&["pool", "bytes", "align", "zero-fill"], &["bytes", "align", "zero-fill"]);
        for pool in SegmentKind::ALL {
            let segment = self.planned.segment_plan().segment(pool);
            table.row(vec![
                pool.name().to_string(),
                segment.size.to_string(),
                segment.align.to_string(),
                segment.zero_fill.to_string(),
            ]);
        }
        table
    }

    fn plan_notes(&self) -> String {
        format!(
            "  {} GOT slots (read-only), {} stubs (code), {} frames for the unwinder\n",
            self.planned.got_slot_count(),
            self.planned.stub_count(),
            self.planned.segment_plan().frame_count
        )
    }
}

/// Sections appear by their number in the table of sections, because their names are too long for a column.
fn place_text(place: &SymbolPlace) -> String {
    match place {
        SymbolPlace::Section(block, offset) => format!("section {}+{offset:#x}", block.index()),
        SymbolPlace::Absolute(value) => format!("absolute {value:#x}"),
        SymbolPlace::Undefined => "undefined".to_string(),
        SymbolPlace::NotInMemory => "not in memory".to_string(),
    }
}
