// The fake HIP runtime's state: devices, loaded modules, planned failures, launches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "buffers.hpp"
#include "failure.hpp"
#include "run/launch.hpp"
#include "settings.hpp"

namespace fake_hip {

struct Kernel {
  int device;
  const emu::Program* program;
  const emu::KernelInfo* info;
};

struct Module {
  int device;
  std::unique_ptr<emu::Program> program;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

// The arguments of hipModuleLaunchKernel.
struct Request {
  const Kernel* kernel;
  std::uint32_t grid[3], block[3], dynamic_lds;
  void** arguments;
};

// A device's attributes PhysicalMultiProcessorCount, MultiprocessorCount and MaxThreadsPerMultiProcessor.
struct Size {
  int physical, multiprocessors, threads;
};

class Runtime {
 public:
  // Throws Failure for invalid settings in the environment.
  static Runtime& get();

  // Counts a call of a HIP function. Throws a failure due now: an earlier launch's, or a planned one.
  void enter(const char* call);

  int device_count() const { return static_cast<int>(settings_.archs.size()); }
  const std::string& arch(int device) const;
  Size size(int device) const;  // of the largest device of its arch
  int current_device() const;
  void set_device(int device);

  Module* load(const void* image);
  Kernel* find(Module* module, const std::string& name);
  // Throws Failure (hipErrorInvalidHandle) unless `find` gave this handle.
  const Kernel* known(const void* handle) const;
  void launch(const Request& request);

  Buffers& buffers() { return buffers_; }
  void plan_failures(const std::string& text);

  // JSON: modules (loaded), launches (since the last forget_launches).
  std::string report();
  void forget_launches();
  // JSON, see listing_of. Throws Failure for a kernel missing from the loaded code objects.
  std::string listing(const std::string& kernel);

 private:
  Runtime() : settings_(read_settings()) {}
  void require(int device) const;
  bool due(const std::string& call, int* error);
  std::string run(const Request& request);

  mutable std::mutex mutex_;
  std::mutex running_;  // launches are on one stream
  Settings settings_;
  Buffers buffers_;
  std::map<std::string, std::uint64_t> calls_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<std::string> launches_;  // JSON
  int pending_ = 0;                    // failure of an asynchronous launch
};

}  // namespace fake_hip
