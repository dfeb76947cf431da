// What another process costs LLVM's ORC: the rows of `benches/executor.rs`, with the same object.
//
//   peer OBJECT EXECUTOR OWN_EXECUTOR
//
// OBJECT is `docs/examples/add.o`. EXECUTOR is LLVM's `llvm-jitlink-executor`, OWN_EXECUTOR is built from `executor.cpp`.
// Each figure is the median of its rounds. `executor.rs` has more rounds.

#include "llvm/ExecutionEngine/JITLink/EHFrameSupport.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/EPCEHFrameRegistrar.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/MemoryMapper.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/Shared/OrcRTBridge.h"
#include "llvm/ExecutionEngine/Orc/SimpleRemoteEPC.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/RegisterEHFrames.h"
#include "llvm/ExecutionEngine/Orc/TaskDispatch.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <iterator>
#include <memory>
#include <optional>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace llvm;
using namespace llvm::orc;

namespace {

using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

ExitOnError check("peer: ");
std::string object_bytes, stock_executor, own_executor;

void require(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "peer: %s\n", what);
        exit(1);
    }
}

/// How a place is set up.
struct Kind {
    const char *name;
    /// Code runs in another process.
    bool remote;
    /// The linker writes into memory that it shares with the executor.
    bool shared;
    /// The fastest combination found: tasks run in the thread that has them, the executor is our own, and unwind tables are
    /// registered by the request that finalizes the memory.
    bool tuned;
};

const Kind kinds[] = {
    {"in process", false, false, false},
    {"executor", true, false, false},
    {"shared memory", true, true, false},
    {"best", true, true, true},
};

/// Registers unwind tables by allocation actions, as LLVM 20 and newer do. It needs no message of its own.
struct UnwindTablesByAction : ObjectLinkingLayer::Plugin {
    ExecutorAddr add, remove;

    UnwindTablesByAction(ExecutorProcessControl &control) {
        check(control.getBootstrapSymbols(
            {{add, rt::RegisterEHFrameSectionWrapperName}, {remove, rt::DeregisterEHFrameSectionWrapperName}}));
    }

    void modifyPassConfig(MaterializationResponsibility &, jitlink::LinkGraph &, jitlink::PassConfiguration &passes) override {
        passes.PostFixupPasses.push_back([this](jitlink::LinkGraph &graph) -> Error {
            jitlink::Section *section = graph.findSectionByName(".eh_frame");
            if (!section || section->blocks().empty())
                return Error::success();
            ExecutorAddrRange range = jitlink::SectionRange(*section).getRange();
            using Arguments = shared::SPSArgList<shared::SPSExecutorAddrRange>;
            graph.allocActions().push_back({cantFail(shared::WrapperFunctionCall::Create<Arguments>(add, range)),
                                            cantFail(shared::WrapperFunctionCall::Create<Arguments>(remove, range))});
            return Error::success();
        });
    }

    Error notifyFailed(MaterializationResponsibility &) override { return Error::success(); }
    Error notifyRemovingResources(JITDylib &, ResourceKey) override { return Error::success(); }
    void notifyTransferringResources(JITDylib &, ResourceKey, ResourceKey) override {}
};

Expected<std::unique_ptr<jitlink::JITLinkMemoryManager>> create_shared_memory(SimpleRemoteEPC &control) {
    SharedMemoryMapper::SymbolAddrs symbols;
    if (Error error = control.getBootstrapSymbols(
            {{symbols.Instance, rt::ExecutorSharedMemoryMapperServiceInstanceName},
             {symbols.Reserve, rt::ExecutorSharedMemoryMapperServiceReserveWrapperName},
             {symbols.Initialize, rt::ExecutorSharedMemoryMapperServiceInitializeWrapperName},
             {symbols.Deinitialize, rt::ExecutorSharedMemoryMapperServiceDeinitializeWrapperName},
             {symbols.Release, rt::ExecutorSharedMemoryMapperServiceReleaseWrapperName}}))
        return error;
    return MapperJITLinkMemoryManager::CreateWithMapper<SharedMemoryMapper>(64 << 20, control, symbols);
}

/// A session, and where its code runs.
class Place {
public:
    explicit Place(const Kind &kind) : kind(kind) {
        std::unique_ptr<TaskDispatcher> dispatcher;
        if (kind.remote && !kind.tuned)
            // `llvm-jitlink` has this one.
            dispatcher = std::make_unique<DynamicThreadPoolTaskDispatcher>(std::nullopt);
        else
            dispatcher = std::make_unique<InPlaceTaskDispatcher>();
        std::unique_ptr<ExecutorProcessControl> created;
        if (kind.remote)
            created = start_executor(std::move(dispatcher));
        else
            created = check(SelfExecutorProcessControl::Create(std::make_shared<SymbolStringPool>(), std::move(dispatcher),
                                                               check(jitlink::InProcessMemoryManager::Create())));
        control = created.get();
        session = std::make_unique<ExecutionSession>(std::move(created));
        layer = std::make_unique<ObjectLinkingLayer>(*session);
        if (kind.tuned)
            layer->addPlugin(std::make_shared<UnwindTablesByAction>(*control));
        else
            // `llvm-jitlink` registers unwind tables so.
            layer->addPlugin(
                std::make_shared<EHFrameRegistrationPlugin>(*session, check(EPCEHFrameRegistrar::Create(*session))));
        symbol = session->intern("add");
        main_dylib = &session->createBareJITDylib("main");
    }

    ~Place() {
        symbol = nullptr;
        check(session->endSession());
        layer.reset();
        session.reset();
        int status = 0;
        if (kind.remote)
            require(waitpid(child, &status, 0) == child && status == 0, "the executor failed");
    }

    /// Prepares what the operations need. A place that only starts needs none of it.
    void prepare() {
        for (int number = 0; number < 1000; number++)
            dylibs.push_back(&session->createBareJITDylib(std::to_string(number)));
        JITDylib &called = session->createBareJITDylib("called");
        add(called);
        function = find(called);
    }

    /// Each operation returns how many modules or calls it has measured.
    int one() {
        ResourceTrackerSP tracker = add(*main_dylib);
        find(*main_dylib);
        check(tracker->remove());
        return 1;
    }

    int one_that_runs() {
        ResourceTrackerSP tracker = add(*main_dylib);
        run(find(*main_dylib));
        check(tracker->remove());
        return 1;
    }

    int many() {
        std::vector<ResourceTrackerSP> trackers;
        for (JITDylib *dylib : dylibs)
            trackers.push_back(add(*dylib));
        for (JITDylib *dylib : dylibs)
            find(*dylib);
        for (ResourceTrackerSP &tracker : trackers)
            check(tracker->remove());
        return dylibs.size();
    }

    /// Runs a function of a module that stays.
    void one_that_stays() {
        add(*main_dylib);
        run(find(*main_dylib));
    }

    int call() {
        run(function);
        return 1;
    }

    const Kind &kind;

private:
    std::unique_ptr<ExecutorProcessControl> start_executor(std::unique_ptr<TaskDispatcher> dispatcher) {
        int to[2], from[2];
        require(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC), "no pipe");
        std::string path = kind.tuned ? own_executor : stock_executor;
        std::string descriptors = "filedescs=" + std::to_string(to[0]) + "," + std::to_string(from[1]);
        char *arguments[] = {path.data(), descriptors.data(), nullptr};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        // The executor inherits a descriptor that is duplicated to itself.
        posix_spawn_file_actions_adddup2(&actions, to[0], to[0]);
        posix_spawn_file_actions_adddup2(&actions, from[1], from[1]);
        require(!posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environ), "the executor does not start");
        posix_spawn_file_actions_destroy(&actions);
        close(to[0]);
        close(from[1]);
        SimpleRemoteEPC::Setup setup;
        if (kind.shared)
            setup.CreateMemoryManager = create_shared_memory;
        return check(SimpleRemoteEPC::Create<FDSimpleRemoteEPCTransport>(std::move(dispatcher), std::move(setup),
                                                                         from[0], to[1]));
    }

    ResourceTrackerSP add(JITDylib &dylib) {
        ResourceTrackerSP tracker = dylib.createResourceTracker();
        check(layer->add(tracker, MemoryBuffer::getMemBuffer(MemoryBufferRef(object_bytes, "add.o"), false)));
        return tracker;
    }

    ExecutorAddr find(JITDylib &dylib) {
        ExecutorAddr address = check(session->lookup({&dylib}, symbol)).getAddress();
        require(bool(address), "`add` has no address");
        return address;
    }

    /// ORC's call passes one `int`, and `add` takes two: the second is what its register has. So the result is not checked. The
    /// call fails if the executor does.
    void run(ExecutorAddr address) { check(control->runAsIntFunction(address, 2)); }

    pid_t child = 0;
    ExecutorProcessControl *control;
    std::unique_ptr<ExecutionSession> session;
    std::unique_ptr<ObjectLinkingLayer> layer;
    SymbolStringPtr symbol;
    JITDylib *main_dylib;
    std::vector<JITDylib *> dylibs;
    ExecutorAddr function;
};

void report(const std::string &what, std::vector<Micros> &times, int count) {
    std::sort(times.begin(), times.end());
    printf("%-60s %9.2f µs\n", what.c_str(), times[times.size() / 2].count() / count);
    fflush(stdout);
}

/// Measures the start of each executor, round by round. The end of a session is not measured.
void measure_start(int rounds) {
    std::vector<Micros> found[std::size(kinds)];
    for (int round = 0; round < rounds; round++)
        for (size_t index = 0; index < std::size(kinds); index++) {
            if (!kinds[index].remote)
                continue;
            Clock::time_point begin = Clock::now();
            Place place(kinds[index]);
            place.one_that_stays();
            found[index].push_back(Clock::now() - begin);
        }
    for (size_t index = 0; index < std::size(kinds); index++)
        if (kinds[index].remote)
            report(std::string(kinds[index].name) + ": start of an executor, to the result of the first call", found[index], 1);
}

using Places = std::vector<std::unique_ptr<Place>>;

/// Measures an operation everywhere, round by round, so that what the machine does meanwhile meets all places.
void measure(const char *what, Places &places, int rounds, int times, int (Place::*operation)()) {
    std::vector<std::vector<Micros>> found(places.size());
    int each = 1;
    for (int round = 0; round < rounds + 2; round++)
        for (size_t index = 0; index < places.size(); index++) {
            Clock::time_point begin = Clock::now();
            for (int time = 0; time < times; time++)
                each = (*places[index].*operation)();
            // The first rounds warm up.
            if (round >= 2)
                found[index].push_back(Clock::now() - begin);
        }
    for (size_t index = 0; index < places.size(); index++)
        report(std::string(places[index]->kind.name) + ": " + what, found[index], times * each);
}

} // namespace

int main(int count, char **arguments) {
    require(count == 4, "usage: peer OBJECT EXECUTOR OWN_EXECUTOR");
    auto file = MemoryBuffer::getFile(arguments[1]);
    require(bool(file), "the object cannot be read");
    object_bytes = (*file)->getBuffer().str();
    stock_executor = arguments[2];
    own_executor = arguments[3];

    measure_start(50);
    Places places;
    for (const Kind &kind : kinds) {
        places.push_back(std::make_unique<Place>(kind));
        places.back()->prepare();
    }
    measure("add, look up and remove a small module", places, 100, 10, &Place::one);
    measure("add, look up, call once and remove a small module", places, 100, 10, &Place::one_that_runs);
    measure("1,000 small modules together, each", places, 5, 1, &Place::many);
    measure("call there and back", places, 100, 50, &Place::call);
}
