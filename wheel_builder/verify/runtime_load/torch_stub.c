// The parts of torch that the wheel's library needs to be loaded, to register its operators and to run them:
// strings, and errors that are kept instead of thrown. probe.py adds torch's other functions. They return 0, and
// probe.py's calls never reach them.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*boxed)(uint64_t*, uint64_t, uint64_t);

static struct {
  char name[64];
  boxed call;
} operators[32];
static int operator_count;
static char failure[4096];

struct string {
  size_t length;
  char text[];
};

int32_t aoti_torch_library_init_def(const char* ns, const char* file, uint32_t line, void** library) {
  (void)ns, (void)file, (void)line;
  *library = operators;
  return 0;
}

int32_t aoti_torch_library_init_impl(const char* ns, const char* key, const char* file, uint32_t line,
                                     void** library) {
  (void)key;
  return aoti_torch_library_init_def(ns, file, line, library);
}

int32_t torch_library_impl(void* library, const char* name, boxed call, uint64_t abi_version) {
  (void)library, (void)abi_version;
  if (operator_count == sizeof operators / sizeof operators[0]) return 1;
  strncpy(operators[operator_count].name, name, sizeof operators[0].name - 1);
  operators[operator_count++].call = call;
  return 0;
}

int32_t torch_new_string_handle(const char* data, size_t length, struct string** handle) {
  *handle = malloc(sizeof(struct string) + length + 1);
  if (*handle == NULL) return 1;
  (*handle)->length = length;
  memcpy((*handle)->text, data, length);
  (*handle)->text[length] = '\0';
  return 0;
}

int32_t torch_string_length(struct string* handle, size_t* length) {
  *length = handle->length;
  return 0;
}

int32_t torch_string_c_str(struct string* handle, const char** data) {
  *data = handle->text;
  return 0;
}

int32_t torch_delete_string(struct string* handle) {
  free(handle);
  return 0;
}

void aoti_torch_check(_Bool holds, const char* function, const char* file, uint32_t line,
                      const char* message) {
  (void)function, (void)file, (void)line;
  if (!holds) strncpy(failure, message, sizeof failure - 1);
}

// For probe.py: calls an operator that returns a string. Returns the string, the error's text, or NULL for an
// unregistered operator.
const char* fake_hip_call(const char* name, uint64_t argument, int inputs, int* failed) {
  failure[0] = '\0';
  for (int n = 0; n < operator_count; ++n) {
    if (strcmp(operators[n].name, name) != 0) continue;
    uint64_t stack[4] = {argument};
    operators[n].call(stack, (uint64_t)inputs, 1);
    *failed = failure[0] != '\0';
    return *failed ? failure : ((struct string*)(uintptr_t)stack[0])->text;
  }
  return NULL;
}
