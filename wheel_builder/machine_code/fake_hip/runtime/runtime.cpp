#include "runtime.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "code.hpp"
#include "device/arch/names.hpp"
#include "device/arch/traits.hpp"
#include "record.hpp"
#include "run/setup.hpp"

namespace fake_hip {

namespace {

// HIP's current device is per thread.
thread_local int current = 0;

constexpr std::uint64_t kMaxInstructions = 1u << 26;  // per wave, beyond it a loop counts as endless

// The metadata's explicit arguments. Kernels of this project have one, a struct passed by value. It fills the
// argument segment up to the first hidden argument.
std::size_t explicit_bytes(const emu::KernelInfo& info) {
  std::size_t end = info.kernarg;
  for (const emu::HiddenArg& hidden : info.hidden) end = std::min<std::size_t>(end, hidden.offset);
  return end;
}

emu::Launch prepared(const Request& request) {
  emu::Launch launch;
  launch.program = request.kernel->program;
  launch.kernel = request.kernel->info;
  std::copy(request.grid, request.grid + 3, launch.grid);
  std::copy(request.block, request.block + 3, launch.block);
  launch.dynamic_lds = request.dynamic_lds;
  return launch;
}

void require_launchable(const Request& request) {
  emu::Launch launch = prepared(request);
  try {
    emu::check_launch(launch);
  } catch (const emu::Error& error) {
    throw Failure(hipErrorInvalidConfiguration, error.what());
  }
  if (explicit_bytes(*request.kernel->info) > 0 &&
      (request.arguments == nullptr || request.arguments[0] == nullptr)) {
    throw Failure(hipErrorInvalidValue, "the kernel has an argument, and none was given");
  }
}

}  // namespace

Runtime& Runtime::get() {
  // Never destroyed: the host library may call it during exit.
  static Runtime& runtime = *new Runtime;
  return runtime;
}

void Runtime::enter(const char* call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pending_ != 0) throw Failure(static_cast<hipError_t>(pending_), "an earlier launch failed");
  int error = 0;
  if (due(call, &error))
    throw Failure(static_cast<hipError_t>(error), std::string(call) + " was told to fail");
}

// Counts one call, or one launch for kAsync, and says whether a planned failure is due.
bool Runtime::due(const std::string& call, int* error) {
  const std::uint64_t time = ++calls_[call];
  for (const PlannedFailure& failure : settings_.failures) {
    if (failure.call == call && (failure.only == 0 || failure.only == time)) {
      *error = failure.error;
      return true;
    }
  }
  return false;
}

void Runtime::plan_failures(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  settings_.failures = parse_failures(text);
  calls_.clear();
  pending_ = 0;
}

void Runtime::require(int device) const {
  if (device_count() == 0) throw Failure(hipErrorNoDevice, "FA_FAKE_HIP_ARCH names no device");
  if (device < 0 || device >= device_count()) {
    throw Failure(hipErrorInvalidDevice,
                  "device " + std::to_string(device) + " of " + std::to_string(device_count()));
  }
}

const std::string& Runtime::arch(int device) const {
  require(device);
  return settings_.archs[static_cast<std::size_t>(device)];
}

Size Runtime::size(int device) const {
  const std::string& name = arch(device);
  const fa::Gpu* gpu = fa::find_gpu(name);
  if (gpu == nullptr) throw Failure(hipErrorInvalidDevice, "how large " + name + " is, is not known");
  const fa::ArchTraits traits = fa::traits(gpu->code_object);
  const int units = gpu->compute_units, threads = traits.wave * traits.simds * traits.waves_per_simd;
  const int each = traits.cus_of_workgroup;
  if (settings_.counts_pairs) return {units / each, units / each, threads * each};
  return {units, units / each, threads};
}

int Runtime::current_device() const {
  require(current);
  return current;
}

void Runtime::set_device(int device) {
  require(device);
  current = device;
}

Module* Runtime::load(const void* image) {
  const int device = current_device();
  auto module = std::make_unique<Module>();
  module->device = device;
  module->program = load_code(image, arch(device), settings_.disassembly);
  const std::lock_guard<std::mutex> lock(mutex_);
  modules_.push_back(std::move(module));
  return modules_.back().get();
}

Kernel* Runtime::find(Module* module, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool known = std::any_of(modules_.begin(), modules_.end(),
                                 [&](const auto& loaded) { return loaded.get() == module; });
  if (!known) throw Failure(hipErrorInvalidHandle, "the module was not loaded here");
  const emu::KernelInfo* info = module->program->kernel(name);
  if (info == nullptr) throw Failure(hipErrorNotFound, "the code object has no kernel '" + name + "'");
  module->kernels.push_back(std::make_unique<Kernel>(Kernel{module->device, module->program.get(), info}));
  return module->kernels.back().get();
}

const Kernel* Runtime::known(const void* handle) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& module : modules_) {
    for (const auto& kernel : module->kernels) {
      if (kernel.get() == handle) return kernel.get();
    }
  }
  throw Failure(hipErrorInvalidHandle, "the function is none that hipModuleGetFunction gave");
}

void Runtime::launch(const Request& request) {
  if (request.kernel->device != current_device()) {
    throw Failure(hipErrorInvalidHandle, "the kernel was loaded for device " +
                                             std::to_string(request.kernel->device) +
                                             ", which is not the current one");
  }
  require_launchable(request);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (due(kAsync, &pending_)) return;
  }
  if (settings_.skips_launches) return;
  const std::lock_guard<std::mutex> one_stream(running_);
  const std::string problems = run(request);
  if (!problems.empty()) throw Failure(hipErrorLaunchFailure, problems);
}

// The launch's error, or "".
std::string Runtime::run(const Request& request) {
  emu::Launch launch = prepared(request);
  launch.kernarg.resize(explicit_bytes(*request.kernel->info));
  if (!launch.kernarg.empty()) {
    std::memcpy(launch.kernarg.data(), request.arguments[0], launch.kernarg.size());
  }
  launch.buffers = buffers_.snapshot();
  launch.options.seed = settings_.seed;
  launch.options.threads = settings_.threads;
  launch.options.checks = settings_.checks;
  launch.options.max_instructions = kMaxInstructions;
  launch.options.max_seconds = settings_.max_seconds;
  launch.options.outcomes = settings_.outcomes;
  std::string stopped;
  try {
    emu::run_launch(launch);
  } catch (const emu::Error& error) {
    stopped = error.what();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  launches_.push_back(record_of(launch, arch(request.kernel->device), stopped));
  return problems_of(launch, stopped);
}

std::string Runtime::report() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string all;
  for (const std::string& one : launches_) all += (all.empty() ? "" : ", ") + one;
  return "{\"modules\": " + std::to_string(modules_.size()) + ", \"launches\": [" + all + "]}";
}

std::string Runtime::listing(const std::string& kernel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& module : modules_) {
    if (const emu::KernelInfo* info = module->program->kernel(kernel)) {
      return listing_of(*module->program, *info);
    }
  }
  throw Failure(hipErrorNotFound, "no loaded code object has a kernel '" + kernel + "'");
}

void Runtime::forget_launches() {
  const std::lock_guard<std::mutex> lock(mutex_);
  launches_.clear();
}

}  // namespace fake_hip
