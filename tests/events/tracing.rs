//! `TracingObserver`: the fields that subscribers get.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use jittison::Jit;
use jittison::base::ExecutorAddr;
use jittison::platform::TracingObserver;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::*;

/// Fields of one event, as text; the level among them.
type Fields = BTreeMap<String, String>;

/// Keeps the fields of events.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Fields>>>);

struct Reader(Fields);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_string(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_string(), value.to_string());
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "jittison"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut reader = Reader(Fields::new());
        reader.0.insert("level".to_string(), event.metadata().level().to_string());
        event.record(&mut reader);
        self.0.lock().unwrap().push(reader.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The only event of a kind about a thing.
fn only<'a>(told: &'a [Fields], event: &str, is_it: impl Fn(&Fields) -> bool) -> &'a Fields {
    let found: Vec<_> = told.iter().filter(|fields| fields["event"] == event && is_it(fields)).collect();
    assert_eq!(found.len(), 1, "{event}: {told:?}");
    found[0]
}

#[test]
fn subscribers_get_what_happens_with_its_fields() {
    let (Some(object), Some(lacking)) = (
        c("static long state = 4; long test(void) { return state; }"),
        c("extern long nobody_has_it(void); long bad(void) { return nobody_has_it(); }"),
    ) else {
        return;
    };
    let keeper = Keeper::default();
    let subscriber = keeper.clone();
    tracing::subscriber::with_default(subscriber, || {
        let jit = Jit::builder().observer(Arc::new(TracingObserver)).build().unwrap();
        let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
        assert_eq!(long(&jit, "test"), 4);
        let usage = jit.usage(&tracker);
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: nobody calls it.
        unsafe { jit.redirect_stub(jit.main_dylib(), "stub", ExecutorAddr::new(0x2000)) }.unwrap();
        let bad = add(&jit, jit.main_dylib(), "bad.o", &lacking);
        jit.address_of(jit.main_dylib(), "bad").unwrap_err();
        bad.transfer_to(&tracker).unwrap();
        let of_all = jit.usage(&tracker);
        let key = tracker.key().to_string();
        tracker.remove().unwrap();
        let returned = jit.release_free();
        drop((tracker, bad, jit));

        let told = keeper.0.lock().unwrap().clone();
        let is = |field: &'static str, value: &str| {
            let value = value.to_string();
            move |fields: &Fields| fields.get(field) == Some(&value)
        };
        let linked = only(&told, "linked", is("object", "module.o"));
        assert_eq!((&*linked["level"], &*linked["dylib"], &linked["key"]), ("DEBUG", "main", &key));
        assert_eq!([&linked["code"], &linked["data"]], [&usage.code.to_string(), &usage.data.to_string()]);
        assert_eq!((&*linked["definitions"], &*linked["externals"]), ("1", "0"));
        for field in ["relocations", "reserved", "read_only", "elapsed_us"] {
            assert!(linked[field].parse::<u64>().is_ok(), "{field}: {linked:?}");
        }
        assert_eq!(only(&told, "resolved", is("unit", "module.o"))["symbols"], "1");
        assert!(told.iter().any(|fields| fields["event"] == "published" && fields["symbols"].contains("test")));
        let redirected = only(&told, "redirected", is("stub", "stub"));
        assert_eq!((&*redirected["from"], &*redirected["to"]), ("0x1000", "0x2000"));
        let refused = only(&told, "refused", is("unit", "bad.o"));
        assert_eq!(&*refused["level"], "WARN");
        assert!(refused["error"].contains("nobody_has_it"));
        assert_eq!(only(&told, "transferred", is("destination", &key))["level"], "DEBUG");
        assert_eq!(only(&told, "retired", is("key", &key))["handles"], "0");
        assert_eq!(only(&told, "reclaimed", is("key", &key))["bytes"], of_all.total().to_string());
        let bytes = told.iter().filter(|fields| fields["event"] == "returned").map(|fields| &fields["bytes"]);
        assert_eq!(bytes.map(|bytes| bytes.parse::<u64>().unwrap()).sum::<u64>(), returned.bytes);
        for kind in ["window mapped", "slab opened", "window unmapped"] {
            assert!(told.iter().any(|fields| fields["event"] == kind), "{kind}: {told:?}");
        }
    });
}
