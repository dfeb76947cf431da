// An executor like `llvm-jitlink-executor` of LLVM. It runs each request in the thread that reads it. That of LLVM starts a
// thread for each request.
//
//   executor filedescs=IN,OUT

#include "llvm/ExecutionEngine/Orc/Shared/SimpleRemoteEPCUtils.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/ExecutorSharedMemoryMapperService.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/SimpleExecutorMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/SimpleRemoteEPCServer.h"
#include "llvm/Support/Error.h"

#include <cstdio>
#include <memory>

using namespace llvm;
using namespace llvm::orc;

struct InlineDispatcher : SimpleRemoteEPCServer::Dispatcher {
    void dispatch(unique_function<void()> work) override { work(); }
    void shutdown() override {}
};

int main(int count, char **arguments) {
    int in, out;
    if (count != 2 || sscanf(arguments[1], "filedescs=%d,%d", &in, &out) != 2) {
        fprintf(stderr, "usage: executor filedescs=IN,OUT\n");
        return 2;
    }
    ExitOnError check("executor: ");
    auto set_up = [](SimpleRemoteEPCServer::Setup &setup) -> Error {
        setup.setDispatcher(std::make_unique<InlineDispatcher>());
        setup.bootstrapSymbols() = SimpleRemoteEPCServer::defaultBootstrapSymbols();
        setup.services().push_back(std::make_unique<rt_bootstrap::SimpleExecutorMemoryManager>());
        setup.services().push_back(std::make_unique<rt_bootstrap::ExecutorSharedMemoryMapperService>());
        return Error::success();
    };
    auto server = check(SimpleRemoteEPCServer::Create<FDSimpleRemoteEPCTransport>(set_up, in, out));
    check(server->waitForDisconnect());
}
