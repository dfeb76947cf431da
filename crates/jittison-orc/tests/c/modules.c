// Uses the ORC C API as LLVM 19 has it: modules under trackers, units, generators, transforms, lazy functions, removal.
// Prints one line for each promise, and ends with 0 if all hold. LLVM makes the machine code.

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/OrcEE.h>
#include <llvm-c/Target.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// LLVM 19 declares this function and does not define it.
#pragma weak LLVMOrcCreateStaticLibrarySearchGeneratorForPath

static const char *current = "setup";

static void fail(const char *what) {
  printf("FAILED %s: %s\n", current, what);
  exit(1);
}

static void check(int holds, const char *what) {
  if (!holds)
    fail(what);
}

static void ok(LLVMErrorRef error) {
  if (error)
    fail(LLVMGetErrorMessage(error));
}

// The message of an error, which must be one.
static char *message(LLVMErrorRef error) {
  check(error != NULL, "an error was expected");
  return LLVMGetErrorMessage(error);
}

static void refused(LLVMErrorRef error, const char *part) {
  char *text = message(error);
  if (!strstr(text, part)) {
    printf("FAILED %s: the error says \"%s\" and not \"%s\"\n", current, text, part);
    exit(1);
  }
  LLVMDisposeErrorMessage(text);
}

static LLVMOrcThreadSafeModuleRef module(const char *text) {
  LLVMOrcThreadSafeContextRef context = LLVMOrcCreateNewThreadSafeContext();
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "module");
  LLVMModuleRef parsed;
  char *problem;
  if (LLVMParseIRInContext(LLVMOrcThreadSafeContextGetContext(context), buffer, &parsed, &problem))
    fail(problem);
  LLVMOrcThreadSafeModuleRef made = LLVMOrcCreateNewThreadSafeModule(parsed, context);
  LLVMOrcDisposeThreadSafeContext(context);
  return made;
}

static LLVMOrcLLJITRef jit;
static LLVMOrcExecutionSessionRef session;
static LLVMOrcJITDylibRef main_dylib;

static uint64_t address(const char *name) {
  uint64_t found = 0;
  ok(LLVMOrcLLJITLookup(jit, &found, name));
  return found;
}

static LLVMErrorRef lookup(const char *name) {
  uint64_t found;
  LLVMErrorRef error = LLVMOrcLLJITLookup(jit, &found, name);
  check(error || found, "no address and no error");
  return error;
}

static int call(const char *name) { return ((int (*)(void))address(name))(); }

static LLVMOrcSymbolStringPoolEntryRef intern(const char *name) { return LLVMOrcExecutionSessionIntern(session, name); }

static const LLVMJITSymbolFlags exported = {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0};

// A module under a tracker runs, and is gone after its removal. Its name can be defined again.
static void removal(void) {
  for (int round = 0; round < 3; round++) {
    LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(main_dylib);
    char text[200];
    snprintf(text, sizeof text, "define i32 @removed() {\n ret i32 %d\n}\n", round);
    ok(LLVMOrcLLJITAddLLVMIRModuleWithRT(jit, tracker, module(text)));
    check(call("removed") == round, "the function returns another value");
    ok(LLVMOrcResourceTrackerRemove(tracker));
    ok(LLVMOrcResourceTrackerRemove(tracker));
    refused(lookup("removed"), "removed");
    LLVMOrcReleaseResourceTracker(tracker);
  }
}

// A module that is removed before it is looked up is never compiled; one with a wrong layout is refused.
static int compiled;
static LLVMErrorRef count_modules(void *context, LLVMOrcThreadSafeModuleRef *inout, LLVMOrcMaterializationResponsibilityRef mr) {
  size_t count;
  LLVMOrcCSymbolFlagsMapPairs symbols = LLVMOrcMaterializationResponsibilityGetSymbols(mr, &count);
  check(count >= 1, "the responsibility has no symbol");
  LLVMOrcDisposeCSymbolFlagsMap(symbols);
  compiled++;
  return context ? LLVMCreateStringError("the transform refuses it") : LLVMErrorSuccess;
}

static void laziness(void) {
  LLVMOrcIRTransformLayerRef layer = LLVMOrcLLJITGetIRTransformLayer(jit);
  LLVMOrcIRTransformLayerSetTransform(layer, count_modules, NULL);
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(main_dylib);
  ok(LLVMOrcLLJITAddLLVMIRModuleWithRT(jit, tracker, module("define i32 @lazy() {\n ret i32 1\n}\n")));
  ok(LLVMOrcResourceTrackerRemove(tracker));
  LLVMOrcReleaseResourceTracker(tracker);
  check(compiled == 0, "a module was compiled that nobody asked for");
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module("define i32 @lazy() {\n ret i32 2\n}\n")));
  check(compiled == 0, "a module was compiled before its lookup");
  check(call("lazy") == 2 && call("lazy") == 2, "the function returns another value");
  check(compiled == 1, "the transform ran another number of times");
  LLVMOrcIRTransformLayerSetTransform(layer, count_modules, layer);
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module("define i32 @refused() {\n ret i32 2\n}\n")));
  refused(lookup("refused"), "the transform refuses it");
  LLVMOrcIRTransformLayerSetTransform(layer, NULL, NULL);
  LLVMOrcThreadSafeModuleRef other = module("target datalayout = \"E-p:32:32\"\ndefine void @other() {\n ret void\n}\n");
  refused(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, other), "data layout");
  refused(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module("define i32 @lazy() {\n ret i32 2\n}\n")), "lazy");
}

// Linkages of IR: weak definitions of two modules are one, hidden and common symbols are found, constructors run.
static void linkages(void) {
  const char *first = "$shared = comdat any\n"
                      "@common = common global i32 0\n@constructed = global i32 0\n"
                      "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @construct, ptr null }]\n"
                      "define internal void @construct() {\n store i32 5, ptr @constructed\n ret void\n}\n"
                      "define linkonce_odr i32 @shared() comdat {\n ret i32 1\n}\n"
                      "define hidden i32 @concealed() {\n ret i32 7\n}\n"
                      "define i32 @first() {\n %r = call i32 @shared()\n ret i32 %r\n}\n"
                      "define i32 @is_constructed() {\n %r = load i32, ptr @constructed\n ret i32 %r\n}\n";
  const char *second = "$shared = comdat any\n@common = common global i32 0\n"
                       "define linkonce_odr i32 @shared() comdat {\n ret i32 2\n}\n"
                       "declare i32 @concealed()\n"
                       "@alias = alias i32 (), ptr @second\n"
                       "@variable = thread_local global i32 9\n"
                       "define ptr @variable_of_thread() {\n ret ptr @variable\n}\n"
                       "define i32 @second() {\n %r = call i32 @shared()\n %h = call i32 @concealed()\n %s = add i32 %r, %h\n ret i32 %s\n}\n";
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module(first)));
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module(second)));
  check(call("first") == 1, "the first module has another definition");
  check(call("second") == 8, "the second module does not share the definition of the first");
  check(address("alias") == address("second"), "an alias has another address");
  check(call("is_constructed") == 5, "the constructor did not run");
  check(*(int *)address("common") == 0, "a common symbol is not zero");
  void *(*variable)(void) = (void *(*)(void))address("variable_of_thread");
  check((uint64_t)variable() == address("variable"), "a thread-local variable has another address");
  check(*(int *)variable() == 9, "a thread-local variable has another value");
}

// Names of the pool are unique and counted.
static void pool(void) {
  LLVMOrcSymbolStringPoolEntryRef one = intern("a name"), two = intern("a name"), three = intern("another name");
  check(one == two && one != three, "entries are not unique");
  check(!strcmp(LLVMOrcSymbolStringPoolEntryStr(three), "another name"), "an entry has another text");
  LLVMOrcReleaseSymbolStringPoolEntry(two);
  LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(session));
  check(!strcmp(LLVMOrcSymbolStringPoolEntryStr(one), "a name"), "an entry that is referred to is gone");
  LLVMOrcReleaseSymbolStringPoolEntry(one);
  LLVMOrcReleaseSymbolStringPoolEntry(three);
}

// A custom unit: resolves in two steps, adds a symbol, delegates one, replaces one, depends on one.
static int seven(void) { return 7; }
static int destroyed, discarded;
static LLVMJITEvaluatedSymbol evaluated(int (*function)(void)) {
  LLVMJITEvaluatedSymbol symbol = {(uint64_t)function, exported};
  return symbol;
}

static void materialize(void *context, LLVMOrcMaterializationResponsibilityRef mr) {
  check(context == &compiled, "another context");
  check(LLVMOrcMaterializationResponsibilityGetTargetDylib(mr) == main_dylib, "another dylib");
  check(LLVMOrcMaterializationResponsibilityGetExecutionSession(mr) == session, "another session");
  check(!LLVMOrcMaterializationResponsibilityGetInitializerSymbol(mr), "an initializer");
  size_t requested;
  LLVMOrcSymbolStringPoolEntryRef *names = LLVMOrcMaterializationResponsibilityGetRequestedSymbols(mr, &requested);
  check(requested == 1 && !strcmp(LLVMOrcSymbolStringPoolEntryStr(names[0]), "custom_a"), "another requested symbol");
  LLVMOrcDisposeSymbols(names);

  LLVMOrcCSymbolFlagsMapPair added[] = {{intern("custom_added"), exported}};
  ok(LLVMOrcMaterializationResponsibilityDefineMaterializing(mr, added, 1));
  LLVMOrcMaterializationResponsibilityRef other;
  LLVMOrcSymbolStringPoolEntryRef delegated[] = {intern("custom_b")};
  ok(LLVMOrcMaterializationResponsibilityDelegate(mr, delegated, 1, &other));
  LLVMOrcCSymbolMapPair replaced[] = {{intern("custom_b"), evaluated(seven)}};
  ok(LLVMOrcMaterializationResponsibilityReplace(other, LLVMOrcAbsoluteSymbols(replaced, 1)));
  LLVMOrcDisposeMaterializationResponsibility(other);

  LLVMOrcCSymbolMapPair first[] = {{intern("custom_added"), evaluated(seven)}};
  ok(LLVMOrcMaterializationResponsibilityNotifyResolved(mr, first, 1));
  LLVMOrcCSymbolMapPair second[] = {{intern("custom_a"), evaluated(seven)}};
  ok(LLVMOrcMaterializationResponsibilityNotifyResolved(mr, second, 1));
  size_t count;
  LLVMOrcCSymbolFlagsMapPairs symbols = LLVMOrcMaterializationResponsibilityGetSymbols(mr, &count);
  check(count == 2 && symbols[0].Flags.GenericFlags == exported.GenericFlags, "other symbols are owed");
  LLVMOrcDisposeCSymbolFlagsMap(symbols);
  LLVMOrcSymbolStringPoolEntryRef of[] = {intern("custom_a")}, on[] = {intern("custom_added"), intern("custom_b")};
  LLVMOrcCDependenceMapPair dependencies[] = {{main_dylib, {on, 2}}};
  LLVMOrcCSymbolDependenceGroup group = {{of, 1}, dependencies, 1};
  ok(LLVMOrcMaterializationResponsibilityNotifyEmitted(mr, &group, 1));
  LLVMOrcMaterializationResponsibilityFailMaterialization(mr);
  LLVMOrcDisposeMaterializationResponsibility(mr);
}

static void materialize_and_fail(void *context, LLVMOrcMaterializationResponsibilityRef mr) {
  LLVMOrcMaterializationResponsibilityFailMaterialization(mr);
  LLVMOrcDisposeMaterializationResponsibility(mr);
}

static void discard(void *context, LLVMOrcJITDylibRef dylib, LLVMOrcSymbolStringPoolEntryRef name) {
  check(dylib == main_dylib && !strcmp(LLVMOrcSymbolStringPoolEntryStr(name), "custom_weak"), "another symbol is discarded");
  discarded++;
}

static void destroy(void *context) {
  check(context == &compiled, "another context");
  destroyed++;
}

static LLVMOrcMaterializationUnitRef unit(const char *a, const char *b, LLVMOrcMaterializationUnitMaterializeFunction function) {
  LLVMOrcCSymbolFlagsMapPair symbols[] = {{intern(a), exported}, {b ? intern(b) : NULL, exported}};
  return LLVMOrcCreateCustomMaterializationUnit("unit", &compiled, symbols, b ? 2 : 1, NULL, function, discard, destroy);
}

static void units(void) {
  ok(LLVMOrcJITDylibDefine(main_dylib, unit("custom_a", "custom_b", materialize)));
  check(call("custom_a") == 7 && call("custom_b") == 7 && call("custom_added") == 7, "a function returns another value");
  check(destroyed == 0, "a unit was destroyed that was materialized");
  // A unit that fails, and one that cannot be defined: the program still owns it.
  ok(LLVMOrcJITDylibDefine(main_dylib, unit("custom_failing", NULL, materialize_and_fail)));
  refused(lookup("custom_failing"), "custom_failing");
  LLVMOrcMaterializationUnitRef again = unit("custom_a", NULL, materialize);
  refused(LLVMOrcJITDylibDefine(main_dylib, again), "custom_a");
  check(destroyed == 0, "a unit was destroyed that the program owns");
  LLVMOrcDisposeMaterializationUnit(again);
  check(destroyed == 1, "a unit was not destroyed");
  // A weak symbol for which another definition is used.
  LLVMJITSymbolFlags weak = {LLVMJITSymbolGenericFlagsWeak | LLVMJITSymbolGenericFlagsExported, 0};
  LLVMOrcCSymbolFlagsMapPair symbols[] = {{intern("custom_weak"), weak}, {intern("custom_strong"), exported}};
  LLVMOrcMaterializationUnitRef weak_unit =
      LLVMOrcCreateCustomMaterializationUnit("weak", &compiled, symbols, 2, NULL, materialize_and_fail, discard, destroy);
  ok(LLVMOrcJITDylibDefine(main_dylib, weak_unit));
  LLVMOrcCSymbolMapPair strong[] = {{intern("custom_weak"), evaluated(seven)}};
  ok(LLVMOrcJITDylibDefine(main_dylib, LLVMOrcAbsoluteSymbols(strong, 1)));
  check(call("custom_weak") == 7, "the strong definition is not used");
  refused(lookup("custom_strong"), "custom_strong");
  check(discarded == 1, "the weak symbol was not discarded");
}

// Generators: of the process, with a filter, of a program, suspended and continued.
static int wants(void *context, LLVMOrcSymbolStringPoolEntryRef name) {
  return !strncmp(LLVMOrcSymbolStringPoolEntryStr(name), (const char *)context, 3);
}

static int disposed;
static LLVMOrcLookupStateRef suspended;
static LLVMErrorRef generate(LLVMOrcDefinitionGeneratorRef generator, void *context, LLVMOrcLookupStateRef *state, LLVMOrcLookupKind kind,
                             LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags, LLVMOrcCLookupSet set, size_t count) {
  check(context == &disposed, "another context");
  for (size_t i = 0; i < count; i++) {
    const char *name = LLVMOrcSymbolStringPoolEntryStr(set[i].Name);
    if (!strcmp(name, "generated_error"))
      return LLVMCreateStringError("the generator refuses it");
    if (!strcmp(name, "generated_later")) {
      suspended = *state;
      *state = NULL;
      return LLVMErrorSuccess;
    }
    if (strncmp(name, "generated", 9))
      continue;
    LLVMOrcRetainSymbolStringPoolEntry(set[i].Name);
    LLVMOrcCSymbolMapPair pair = {set[i].Name, evaluated(seven)};
    ok(LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(&pair, 1)));
  }
  return LLVMErrorSuccess;
}
static void dispose(void *context) {
  check(context == &disposed, "another context");
  disposed++;
}

static int answers;
static void handle(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t count, void *context) {
  ok(error);
  check(count == 1 && found[0].Sym.Address == (uint64_t)seven && context == &answers, "another outcome");
  answers++;
}

static void generators(void) {
  LLVMOrcDefinitionGeneratorRef process, custom;
  LLVMOrcJITDylibRef bare = LLVMOrcExecutionSessionCreateBareJITDylib(session, "bare");
  check(bare == LLVMOrcExecutionSessionGetJITDylibByName(session, "bare"), "another dylib by name");
  check(!LLVMOrcExecutionSessionGetJITDylibByName(session, "none"), "a dylib that was not made");
  ok(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&process, 0, wants, "str"));
  LLVMOrcJITDylibAddGenerator(bare, process);
  ok(LLVMOrcCreateDynamicLibrarySearchGeneratorForPath(&process, "libm.so.6", '_', NULL, NULL));
  LLVMOrcJITDylibAddGenerator(bare, process);
  refused(LLVMOrcCreateDynamicLibrarySearchGeneratorForPath(&process, "/no/such/library.so", 0, NULL, NULL), "/no/such/library.so");
  refused(LLVMOrcCreateStaticLibrarySearchGeneratorForPath(&process, LLVMOrcLLJITGetObjLinkingLayer(jit), "/no/such/library.a", NULL), "/no/such/library.a");
  const char *names[] = {"strlen", "malloc", "_cos", "_cosine", NULL};
  for (int i = 0; names[i]; i++) {
    LLVMOrcCJITDylibSearchOrderElement order[] = {{bare, LLVMOrcJITDylibLookupFlagsMatchAllSymbols}};
    LLVMOrcCLookupSetElement set[] = {{intern(names[i]), LLVMOrcSymbolLookupFlagsWeaklyReferencedSymbol}};
    extern void count_found(LLVMErrorRef, LLVMOrcCSymbolMapPairs, size_t, void *);
    size_t count = 9;
    LLVMOrcExecutionSessionLookup(session, LLVMOrcLookupKindStatic, order, 1, set, 1, count_found, &count);
    check(count == (size_t)(i % 2 == 0), names[i]);
  }
  custom = LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, &disposed, dispose);
  LLVMOrcDisposeDefinitionGenerator(custom);
  check(disposed == 1, "a generator was not disposed of");
  LLVMOrcJITDylibAddGenerator(main_dylib, LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, &disposed, dispose));
  check(call("generated") == 7, "another definition");
  refused(lookup("generated_error"), "the generator refuses it");
  refused(lookup("not_there"), "not_there");
  LLVMOrcCJITDylibSearchOrderElement order[] = {{main_dylib, LLVMOrcJITDylibLookupFlagsMatchAllSymbols}};
  LLVMOrcCLookupSetElement set[] = {{intern("generated_later"), LLVMOrcSymbolLookupFlagsRequiredSymbol}};
  LLVMOrcExecutionSessionLookup(session, LLVMOrcLookupKindStatic, order, 1, set, 1, handle, &answers);
  check(suspended && answers == 0, "the lookup is not suspended");
  LLVMOrcCSymbolMapPair pair = {intern("generated_later"), evaluated(seven)};
  LLVMOrcLookupStateContinueLookup(suspended, LLVMOrcJITDylibDefine(main_dylib, LLVMOrcAbsoluteSymbols(&pair, 1)));
  check(answers == 1, "the lookup did not continue");
}

void count_found(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t count, void *context) {
  ok(error);
  *(size_t *)context = count;
}

// Lazy functions are linked at their first call, and a call that cannot be linked continues at the error handler.
static int minus_one(void) { return -1; }
static void lazy_functions(void) {
  LLVMOrcJITDylibRef source = LLVMOrcExecutionSessionCreateBareJITDylib(session, "source");
  LLVMOrcIRTransformLayerSetTransform(LLVMOrcLLJITGetIRTransformLayer(jit), count_modules, NULL);
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, source, module("define i32 @body() {\n ret i32 3\n}\n")));
  LLVMOrcLazyCallThroughManagerRef calls;
  ok(LLVMOrcCreateLocalLazyCallThroughManager(LLVMOrcLLJITGetTripleString(jit), session, (uint64_t)minus_one, &calls));
  LLVMOrcIndirectStubsManagerRef stubs = LLVMOrcCreateLocalIndirectStubsManager(LLVMOrcLLJITGetTripleString(jit));
  LLVMOrcCSymbolAliasMapPair aliases[] = {{intern("entry"), {intern("body"), exported}}, {intern("lost"), {intern("no_body"), exported}}};
  ok(LLVMOrcJITDylibDefine(main_dylib, LLVMOrcLazyReexports(calls, stubs, source, aliases, 2)));
  int before = compiled;
  uint64_t entry = address("entry");
  check(compiled == before, "a lazy function was compiled before its call");
  check(((int (*)(void))entry)() == 3 && ((int (*)(void))entry)() == 3, "another value");
  check(compiled == before + 1, "a lazy function was compiled another number of times");
  check(call("lost") == -1, "the error handler was not called");
  LLVMOrcIRTransformLayerSetTransform(LLVMOrcLLJITGetIRTransformLayer(jit), NULL, NULL);
  LLVMOrcDisposeIndirectStubsManager(stubs);
  LLVMOrcDisposeLazyCallThroughManager(calls);
}

// Objects: a transform gets them, and dumps have the names that LLVM gives.
static LLVMErrorRef dump(void *context, LLVMMemoryBufferRef *object) { return LLVMOrcDumpObjects_CallOperator(context, object); }
static LLVMMemoryBufferRef kept;
static LLVMErrorRef keep(void *context, LLVMMemoryBufferRef *object) {
  kept = LLVMCreateMemoryBufferWithMemoryRangeCopy(LLVMGetBufferStart(*object), LLVMGetBufferSize(*object), "kept");
  return LLVMErrorSuccess;
}

static void objects(const char *directory) {
  LLVMOrcObjectTransformLayerRef layer = LLVMOrcLLJITGetObjTransformLayer(jit);
  LLVMOrcDumpObjectsRef dumps = LLVMOrcCreateDumpObjects(directory, "");
  LLVMOrcObjectTransformLayerSetTransform(layer, dump, dumps);
  ok(LLVMOrcLLJITAddLLVMIRModule(jit, main_dylib, module("define i32 @dumped() {\n ret i32 4\n}\n")));
  check(call("dumped") == 4, "another value");
  char path[1000];
  snprintf(path, sizeof path, "%s/module-jitted-objectbuffer.o", directory);
  check(access(path, R_OK) == 0, "the object was not dumped");
  LLVMOrcObjectTransformLayerSetTransform(layer, keep, NULL);
  LLVMOrcDisposeDumpObjects(dumps);
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(main_dylib);
  ok(LLVMOrcLLJITAddLLVMIRModuleWithRT(jit, tracker, module("define i32 @kept() {\n ret i32 6\n}\n")));
  check(call("kept") == 6, "another value");
  LLVMOrcObjectTransformLayerSetTransform(layer, NULL, NULL);
  ok(LLVMOrcResourceTrackerRemove(tracker));
  LLVMOrcReleaseResourceTracker(tracker);
  tracker = LLVMOrcJITDylibCreateResourceTracker(main_dylib);
  ok(LLVMOrcObjectLayerAddObjectFileWithRT(LLVMOrcLLJITGetObjLinkingLayer(jit), tracker, kept));
  check(call("kept") == 6, "another value");
  LLVMOrcResourceTrackerRef other = LLVMOrcJITDylibCreateResourceTracker(main_dylib);
  LLVMOrcResourceTrackerTransferTo(tracker, other);
  LLVMOrcReleaseResourceTracker(tracker);
  check(call("kept") == 6, "another value");
  ok(LLVMOrcResourceTrackerRemove(other));
  LLVMOrcReleaseResourceTracker(other);
  refused(lookup("kept"), "kept");
  LLVMMemoryBufferRef bad = LLVMCreateMemoryBufferWithMemoryRangeCopy("no object", 9, "bad");
  refused(LLVMOrcLLJITAddObjectFile(jit, main_dylib, bad), "object");
}

// Errors that no call returns go to the reporter.
static int reports;
static void report(void *context, LLVMErrorRef error) {
  check(context == &reports, "another context");
  LLVMDisposeErrorMessage(message(error));
  reports++;
}

static void start(void) {
  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcJITTargetMachineBuilderRef machine;
  ok(LLVMOrcJITTargetMachineBuilderDetectHost(&machine));
  char *triple = LLVMOrcJITTargetMachineBuilderGetTargetTriple(machine);
  LLVMOrcJITTargetMachineBuilderSetTargetTriple(machine, triple);
  LLVMDisposeMessage(triple);
  LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder, machine);
  ok(LLVMOrcCreateLLJIT(&jit, builder));
  session = LLVMOrcLLJITGetExecutionSession(jit);
  main_dylib = LLVMOrcLLJITGetMainJITDylib(jit);
  check(LLVMOrcLLJITGetGlobalPrefix(jit) == 0, "a prefix");
  check(strlen(LLVMOrcLLJITGetDataLayoutStr(jit)) > 5, "no data layout");
  LLVMOrcExecutionSessionSetErrorReporter(session, report, &reports);
}

int main(int count, char **arguments) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  start();
  struct {
    const char *name;
    void (*run)(void);
  } steps[] = {{"removal", removal},       {"laziness", laziness}, {"linkages", linkages},           {"pool", pool},
               {"units", units},           {"generators", generators}, {"lazy functions", lazy_functions}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    current = steps[i].name;
    steps[i].run();
    printf("%s\n", current);
  }
  current = "objects";
  objects(arguments[1]);
  printf("objects\n");
  current = "end";
  check(reports == 1, "another number of errors was reported");
  ok(LLVMOrcJITDylibClear(main_dylib));
  refused(lookup("lazy"), "lazy");
  check(disposed == 1, "a generator was disposed of early");
  ok(LLVMOrcDisposeLLJIT(jit));
  check(disposed == 2, "a generator was not disposed of");
  printf("all promises hold\n");
  return 0;
}
