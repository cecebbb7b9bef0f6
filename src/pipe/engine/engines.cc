#include "pipe/engine/engines.h"

#include "pipe/engine/software_engine.h"
#ifdef FERRY_PIPE_RTL
#include "pipe/engine/rtl_engine.h"
#endif

namespace ferry::pipe {

std::vector<std::string> engine_names() {
  std::vector<std::string> names{"software"};
#ifdef FERRY_PIPE_RTL
  names.emplace_back("rtl");
#endif
  return names;
}

std::unique_ptr<Engine> make_engine(const std::string& name) {
  if (name == "software") return std::make_unique<SoftwareEngine>();
#ifdef FERRY_PIPE_RTL
  if (name == "rtl") return std::make_unique<RtlEngine>();
#endif
  return nullptr;
}

}  // namespace ferry::pipe
