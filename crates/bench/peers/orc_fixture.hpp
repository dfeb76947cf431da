// A session of ORC in one of two set-ups, and the fixture of all modes of `orc.cpp`.
//
// lljit: the set-up of LLJIT on Linux, without the parts above the object layer (IR, platform): one mapping per object, and unwind
//   tables registered by the plugin that LLJIT adds.
// best: every option that makes it faster: one slab for all objects, unwind tables dropped (so exceptions cannot pass through the
//   code), each object parsed once, an allocator that keeps free memory, names interned before lookups.
#pragma once
#include "common.hpp"

#include "llvm/ExecutionEngine/JITLink/EHFrameSupport.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/EPCEHFrameRegistrar.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/MemoryMapper.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/RegisterEHFrames.h"
#include "llvm/ExecutionEngine/Orc/TaskDispatch.h"

using namespace llvm;
using namespace llvm::orc;

inline void check(Error error) {
  if (error)
    die(toString(std::move(error)));
}
template <class T> static T check(Expected<T> value) {
  if (!value)
    die(toString(value.takeError()));
  return std::move(*value);
}

// Drops unwind tables before JITLink parses them.
struct DropFrames : ObjectLinkingLayer::Plugin {
  void modifyPassConfig(MaterializationResponsibility &, jitlink::LinkGraph &,
                        jitlink::PassConfiguration &passes) override {
    passes.PrePrunePasses.insert(passes.PrePrunePasses.begin(), [](jitlink::LinkGraph &graph) {
      if (auto *frames = graph.findSectionByName(".eh_frame"))
        graph.removeSection(*frames);
      return Error::success();
    });
  }
  Error notifyFailed(MaterializationResponsibility &) override { return Error::success(); }
  Error notifyRemovingResources(JITDylib &, ResourceKey) override { return Error::success(); }
  void notifyTransferringResources(JITDylib &, ResourceKey, ResourceKey) override {}
};

class Session {
  std::unique_ptr<ExecutionSession> session;
  std::unique_ptr<ObjectLinkingLayer> layer;
  JITDylib *process, *library;
  bool isBest;
  uint64_t creation;

public:
  static std::unique_ptr<jitlink::JITLinkMemoryManager> memory(bool isBest) {
    constexpr size_t SLAB = 64 << 20;
    if (isBest)
      return check(MapperJITLinkMemoryManager::CreateWithMapper<InProcessMemoryMapper>(SLAB));
    return check(jitlink::InProcessMemoryManager::Create());
  }
  Session(const Arguments &arguments, const Instances &instances) : isBest(arguments.text("set-up") == "best") {
    uint64_t start = now();
    session = std::make_unique<ExecutionSession>(check(SelfExecutorProcessControl::Create(
        std::make_shared<SymbolStringPool>(), std::make_unique<InPlaceTaskDispatcher>(), memory(isBest))));
    layer = std::make_unique<ObjectLinkingLayer>(*session);
    if (isBest)
      layer->addPlugin(std::make_shared<DropFrames>());
    else
      layer->addPlugin(
          std::make_shared<EHFrameRegistrationPlugin>(*session, check(EPCEHFrameRegistrar::Create(*session))));
    process = &session->createBareJITDylib("process");
    process->addGenerator(check(DynamicLibrarySearchGenerator::GetForCurrentProcess(0)));
    creation = now() - start;
    library = &session->createBareJITDylib("library");
    library->addToLinkOrder(*process);
    std::string_view bytes = instances.library();
    check(layer->add(*library, MemoryBuffer::getMemBufferCopy(StringRef(bytes.data(), bytes.size()), "runtime")));
    address(*library, "rt_hash");
  }
  ~Session() { check(session->endSession()); }

  ExecutionSession &inner() { return *session; }
  bool best() const { return isBest; }
  // How long it took to create the session, without the library.
  uint64_t creationTime() const { return creation; }

  JITDylib &dylib(const std::string &name) {
    JITDylib &dylib = session->createBareJITDylib(name);
    dylib.addToLinkOrder(*library);
    dylib.addToLinkOrder(*process);
    return dylib;
  }
  uint64_t address(JITDylib &dylib, StringRef name) {
    return check(session->lookup({&dylib}, session->intern(name))).getAddress().getValue();
  }
  void add(const ResourceTrackerSP &tracker, const Instance &instance) {
    MemoryBufferRef buffer(StringRef(instance.bytes.data(), instance.bytes.size()), instance.entry);
    if (isBest)
      check(layer->add(tracker, check(jitlink::createLinkGraphFromObject(buffer))));
    else
      check(layer->add(tracker, MemoryBuffer::getMemBuffer(buffer, false)));
  }
  std::pair<ResourceTrackerSP, uint64_t> link(JITDylib &dylib, const Instance &instance) {
    ResourceTrackerSP tracker = dylib.createResourceTracker();
    add(tracker, instance);
    return {std::move(tracker), address(dylib, instance.entry)};
  }
  ResourceTrackerSP linkChecked(JITDylib &dylib, const Instance &instance) {
    auto [tracker, address] = link(dylib, instance);
    instance.check(address);
    return std::move(tracker);
  }
};

// The state of all modes. The constructor links and removes a first module, which pays for one-time work.
struct Fixture {
  const Arguments &arguments;
  Instances instances;
  Session session;
  JITDylib &dylib;
  std::mt19937_64 rng{3};
  Instance batch[BATCH];

  explicit Fixture(const Arguments &arguments)
      : arguments(arguments), instances(arguments.text("objects")), session(arguments, instances),
        dylib(session.dylib("main")) {
    instances.next(batch[0]);
    check(session.linkChecked(dylib, batch[0])->remove());
  }
  bool isCold = false;

  void makeBatch() {
    for (Instance &instance : batch)
      instances.next(instance);
    if (isCold)
      for (Instance &instance : batch)
        instance.evict();
  }
  std::vector<ResourceTrackerSP> fill(size_t count) {
    std::vector<ResourceTrackerSP> live;
    live.reserve(count + BATCH);
    while (live.size() < count) {
      instances.next(batch[0]);
      live.push_back(session.linkChecked(dylib, batch[0]));
    }
    return live;
  }
  size_t operations() const { return arguments.number("operations"); }
};

inline ResourceTrackerSP takeAny(std::vector<ResourceTrackerSP> &live, std::mt19937_64 &rng) {
  std::swap(live[rng() % live.size()], live.back());
  ResourceTrackerSP taken = std::move(live.back());
  live.pop_back();
  return taken;
}
