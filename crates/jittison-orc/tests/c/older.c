// Uses what the ORC C API of LLVM 14 has otherwise than LLVM 19: dependencies that are said before emission, functions with fewer
// arguments, a main dylib that does not see the process. Prints one line for each promise, and ends with 0 if all hold.

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds, const char *what) {
  if (!holds) {
    printf("FAILED %s\n", what);
    exit(1);
  }
}

static void ok(LLVMErrorRef error) {
  if (error)
    check(0, LLVMGetErrorMessage(error));
}

static LLVMOrcLLJITRef jit;
static LLVMOrcExecutionSessionRef session;
static LLVMOrcJITDylibRef main_dylib;
static const LLVMJITSymbolFlags exported = {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0};

static int seven(void) { return 7; }

static LLVMOrcSymbolStringPoolEntryRef intern(const char *name) { return LLVMOrcExecutionSessionIntern(session, name); }

static LLVMErrorRef lookup(const char *name, uint64_t *found) { return LLVMOrcLLJITLookup(jit, found, name); }

static void fails(const char *name) {
  uint64_t found = 1;
  LLVMErrorRef error = lookup(name, &found);
  check(error && !found, name);
  LLVMConsumeError(error);
}

static void resolve(LLVMOrcMaterializationResponsibilityRef mr, const char *name) {
  LLVMJITCSymbolMapPair pair = {intern(name), {(uint64_t)seven, exported}};
  ok(LLVMOrcMaterializationResponsibilityNotifyResolved(mr, &pair, 1));
}

// Depends on the symbol that the context names.
static void materialize(void *context, LLVMOrcMaterializationResponsibilityRef mr) {
  size_t count;
  LLVMOrcSymbolStringPoolEntryRef *requested = LLVMOrcMaterializationResponsibilityGetRequestedSymbols(mr, &count);
  check(count == 1, "another number of requested symbols");
  LLVMOrcSymbolStringPoolEntryRef name = requested[0];
  resolve(mr, LLVMOrcSymbolStringPoolEntryStr(name));
  LLVMOrcSymbolStringPoolEntryRef names[] = {intern(context)};
  LLVMOrcCDependenceMapPair dependency = {main_dylib, {names, 1}};
  if (strstr(LLVMOrcSymbolStringPoolEntryStr(name), "all"))
    LLVMOrcMaterializationResponsibilityAddDependenciesForAll(mr, &dependency, 1);
  else
    LLVMOrcMaterializationResponsibilityAddDependencies(mr, name, &dependency, 1);
  LLVMOrcDisposeSymbols(requested);
  LLVMErrorRef error = LLVMOrcMaterializationResponsibilityNotifyEmitted(mr);
  if (error) {
    LLVMConsumeError(error);
    LLVMOrcMaterializationResponsibilityFailMaterialization(mr);
  }
  LLVMOrcDisposeMaterializationResponsibility(mr);
}

static void never(void *context) { check(0, "a unit was destroyed that was materialized"); }

static void define(const char *name, const char *dependency) {
  LLVMOrcCSymbolFlagsMapPair symbol = {intern(name), exported};
  LLVMOrcMaterializationUnitRef unit =
      LLVMOrcCreateCustomMaterializationUnit(name, (void *)dependency, &symbol, 1, NULL, materialize, NULL, never);
  ok(LLVMOrcJITDylibDefine(main_dylib, unit));
}

static void define_absolute(const char *name) {
  LLVMJITCSymbolMapPair pair = {intern(name), {(uint64_t)seven, exported}};
  ok(LLVMOrcJITDylibDefine(main_dylib, LLVMOrcAbsoluteSymbols(&pair, 1)));
}

static int generated;
static LLVMErrorRef generate(LLVMOrcDefinitionGeneratorRef generator, void *context, LLVMOrcLookupStateRef *state, LLVMOrcLookupKind kind,
                             LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags, LLVMOrcCLookupSet set, size_t count) {
  check(context == &generated, "another context");
  for (size_t i = 0; i < count; i++)
    if (!strncmp(LLVMOrcSymbolStringPoolEntryStr(set[i].Name), "generated", 9))
      define_absolute(LLVMOrcSymbolStringPoolEntryStr(set[i].Name));
  generated++;
  return LLVMErrorSuccess;
}

int main(void) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  ok(LLVMOrcCreateLLJIT(&jit, NULL));
  session = LLVMOrcLLJITGetExecutionSession(jit);
  main_dylib = LLVMOrcLLJITGetMainJITDylib(jit);

  fails("strlen");
  printf("the main dylib does not see the process\n");

  uint64_t found;
  define("one", "two");
  define("two", "generated_three");
  define("of_all", "two");
  // The third argument of LLVM 15 is what this call leaves in its register.
  LLVMOrcDefinitionGeneratorRef (*create)(LLVMOrcCAPIDefinitionGeneratorTryToGenerateFunction, void *, size_t) =
      (LLVMOrcDefinitionGeneratorRef(*)(LLVMOrcCAPIDefinitionGeneratorTryToGenerateFunction, void *, size_t))
          LLVMOrcCreateCustomCAPIDefinitionGenerator;
  LLVMOrcJITDylibAddGenerator(main_dylib, create(generate, &generated, 0x1234));
  ok(lookup("one", &found));
  check(found == (uint64_t)seven, "another address");
  ok(lookup("of_all", &found));
  check(generated > 0, "the generator was not asked");
  define("lost", "not_there");
  fails("lost");
  printf("dependencies that are said before emission are waited for\n");

  LLVMOrcThreadSafeContextRef context = LLVMOrcCreateNewThreadSafeContext();
  const char *text = "declare i32 @generated_callee()\ndefine i32 @caller() {\n %r = call i32 @generated_callee()\n ret i32 %r\n}\n";
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "module");
  LLVMModuleRef parsed;
  char *problem;
  check(!LLVMParseIRInContext(LLVMOrcThreadSafeContextGetContext(context), buffer, &parsed, &problem), "a parse error");
  LLVMOrcThreadSafeModuleRef module = LLVMOrcCreateNewThreadSafeModule(parsed, context);
  LLVMOrcDisposeThreadSafeContext(context);
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module));
  ok(lookup("caller", &found));
  check(((int (*)(void))found)() == 7, "another value");
  printf("a module is compiled and linked\n");

  // With the disposer of LLVM 15 this would jump to a number.
  ok(LLVMOrcDisposeLLJIT(jit));
  printf("all promises hold\n");
  return 0;
}
