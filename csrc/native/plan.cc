#include "plan.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "parallel.h"
#include "workspace.h"

namespace pfb {

Plan::Plan(PlanData data) : data_(std::move(data)), idle_{} { Workspaces::Instance().PlanMade(); }

Plan::~Plan() {
  for (auto& slot : idle_) std::unique_ptr<Session>(slot.exchange(nullptr)).reset();
  Workspaces::Instance().PlanGone(ArenaBytes());
}

std::unique_ptr<Session> Plan::Lease() {
  for (auto& slot : idle_) {
    if (Session* session = slot.exchange(nullptr)) return std::unique_ptr<Session>(session);
  }
  return std::make_unique<Session>(data_);
}

void Plan::GiveBack(std::unique_ptr<Session> session) {
  for (auto& slot : idle_) {
    Session* empty = nullptr;
    if (slot.compare_exchange_strong(empty, session.get())) {
      // The slot owns it now.
      static_cast<void>(session.release());
      return;
    }
  }
}

void Plan::Run(const std::vector<void*>& inputs, const std::vector<void*>& outputs, void* context,
               std::vector<long long>* nanoseconds) {
  if (outputs.size() != data_.outputs.size()) {
    throw std::invalid_argument("the plan has " + std::to_string(data_.outputs.size()) +
                                " outputs, got " + std::to_string(outputs.size()));
  }
  for (const Storage& storage : data_.storages) {
    if (storage.kind == Storage::Kind::kInput &&
        static_cast<std::size_t>(storage.index) >= inputs.size()) {
      throw std::invalid_argument("the plan reads input " + std::to_string(storage.index) +
                                  ", got only " + std::to_string(inputs.size()));
    }
  }
  const ThreadScope threads(data_.threads);
  LeaveSharedProcessor(data_.threads);
  auto session = Lease();
  auto arena = Workspaces::Instance().Lease(ArenaBytes());
  // When a step throws, both are dropped.
  session->Run(*arena, inputs, outputs, context, nanoseconds);
  Workspaces::Instance().GiveBack(std::move(arena));
  GiveBack(std::move(session));
}

int Plan::OutputHandle(std::size_t i) const {
  const Storage& storage = data_.storages[data_.values[data_.outputs[i]].storage];
  return storage.kind == Storage::Kind::kHandle ? storage.index : -1;
}

}  // namespace pfb
