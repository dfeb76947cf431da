// Clang's compiler without its driver: cc1 with the arguments that `clang -###` prints after "-cc1".
// It writes the same object file as `clang-19 -cc1`, byte for byte.

#include <clang/Basic/Diagnostic.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/FrontendTool/Utils.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/TargetSelect.h>

// Debian's libclangCodeGen.a refers to Polly, which is not used here.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "Polly", "none", [](llvm::PassBuilder &) {}};
}

int main(int count, const char **arguments) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmParser();
    LLVMInitializeX86AsmPrinter();

    llvm::IntrusiveRefCntPtr options(new clang::DiagnosticOptions);
    clang::DiagnosticsEngine diagnostics(new clang::DiagnosticIDs, options,
                                         new clang::TextDiagnosticPrinter(llvm::errs(), options.get()));
    clang::CompilerInstance compiler;
    llvm::ArrayRef given(arguments + 1, arguments + count);
    if (!clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), given, diagnostics, arguments[0]))
        return 1;
    compiler.createDiagnostics();
    return clang::ExecuteCompilerInvocation(&compiler) ? 0 : 1;
}
