//! [`TracingObserver`]: the fields that subscribers get.

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

/// Fields of one event as text, with its level.
type Fields = BTreeMap<String, String>;

/// A subscriber that records the fields of events.
#[derive(Clone, Default)]
struct FieldRecorder(Arc<Mutex<Vec<Fields>>>);

struct Reader(Fields);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_string(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_string(), value.to_string());
    }
}

impl Subscriber for FieldRecorder {
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

/// The only event of this kind that fulfils `matches`.
fn only<'a>(recorded: &'a [Fields], event: &str, matches: impl Fn(&Fields) -> bool) -> &'a Fields {
    let found: Vec<_> = recorded.iter().filter(|fields| fields["event"] == event && matches(fields)).collect();
    assert_eq!(found.len(), 1, "{event}: {recorded:?}");
    found[0]
}

#[test]
fn tracing_subscribers_get_events_with_their_fields() {
    let (Some(object), Some(lacking)) = (
        c("static long state = 4; long test(void) { return state; }"),
        c("extern long nobody_has_it(void); long bad(void) { return nobody_has_it(); }"),
    ) else {
        return;
    };
    let recorder = FieldRecorder::default();
    let subscriber = recorder.clone();
    tracing::subscriber::with_default(subscriber, || {
        let jit = Jit::builder().observer(Arc::new(TracingObserver)).build().unwrap();
        let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
        assert_eq!(long(&jit, "test"), 4);
        let usage = jit.usage(&tracker);
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: no thread calls the stub.
        unsafe { jit.redirect_stub(jit.main_dylib(), "stub", ExecutorAddr::new(0x2000)) }.unwrap();
        let bad = add(&jit, jit.main_dylib(), "bad.o", &lacking);
        jit.address_of(jit.main_dylib(), "bad").unwrap_err();
        bad.transfer_to(&tracker).unwrap();
        let total_usage = jit.usage(&tracker);
        let key = tracker.key().to_string();
        tracker.remove().unwrap();
        let returned = jit.release_free();
        drop((tracker, bad, jit));

        let recorded = recorder.0.lock().unwrap().clone();
        let is = |field: &'static str, value: &str| {
            let value = value.to_string();
            move |fields: &Fields| fields.get(field) == Some(&value)
        };
        let linked = only(&recorded, "linked", is("object", "module.o"));
        assert_eq!((&*linked["level"], &*linked["dylib"], &linked["key"]), ("DEBUG", "main", &key));
        assert_eq!([&linked["code"], &linked["data"]], [&usage.code.to_string(), &usage.data.to_string()]);
        assert_eq!((&*linked["definitions"], &*linked["externals"]), ("1", "0"));
        for field in ["relocations", "reserved", "read_only", "elapsed_us"] {
            assert!(linked[field].parse::<u64>().is_ok(), "{field}: {linked:?}");
        }
        assert_eq!(only(&recorded, "resolved", is("unit", "module.o"))["symbols"], "1");
        assert!(recorded.iter().any(|fields| fields["event"] == "published" && fields["symbols"].contains("test")));
        let redirected = only(&recorded, "redirected", is("stub", "stub"));
        assert_eq!((&*redirected["from"], &*redirected["to"]), ("0x1000", "0x2000"));
        let refused = only(&recorded, "refused", is("unit", "bad.o"));
        assert_eq!(&*refused["level"], "WARN");
        assert!(refused["error"].contains("nobody_has_it"));
        assert_eq!(only(&recorded, "transferred", is("destination", &key))["level"], "DEBUG");
        assert_eq!(only(&recorded, "retired", is("key", &key))["handles"], "0");
        assert_eq!(only(&recorded, "reclaimed", is("key", &key))["bytes"], total_usage.total().to_string());
        let bytes = recorded.iter().filter(|fields| fields["event"] == "returned").map(|fields| &fields["bytes"]);
        assert_eq!(bytes.map(|bytes| bytes.parse::<u64>().unwrap()).sum::<u64>(), returned.bytes);
        for kind in ["window mapped", "slab opened", "window unmapped"] {
            assert!(recorded.iter().any(|fields| fields["event"] == kind), "{kind}: {recorded:?}");
        }
    });
}
