// libcapnp-dev: capnpc capnp kj; pthread
#include <capnp/message.h>
#include <capnp/schema-parser.h>
#include <capnp/dynamic.h>
#include <capnp/pretty-print.h>
#include <iostream>
#include <kj/exception.h>
#include <kj/filesystem.h>

int main() {
    auto directory = kj::newInMemoryDirectory(kj::nullClock());
    directory->openFile(kj::Path("made.capnp"), kj::WriteMode::CREATE)
        ->writeAll(kj::StringPtr("@0xbf5147bb3f7c4bd2; struct Made { number @0 :Int32 = 7; list @1 :List(Text); }"));
    capnp::SchemaParser parser;
    auto schema = parser.parseFromDirectory(*directory, kj::Path("made.capnp"), nullptr).getNested("Made").asStruct();
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<capnp::DynamicStruct>(schema);
    root.init("list", 2).as<capnp::DynamicList>().set(1, "second");
    std::cout << capnp::prettyPrint(root.asReader()).flatten().cStr() << '\n';
    KJ_IF_MAYBE (error, kj::runCatchingExceptions([&] { root.get("missing"); })) std::cout << error->getDescription().cStr() << '\n';
}
