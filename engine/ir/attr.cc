#include "engine/ir/attr.h"

#include <utility>

#include "base/error.h"

namespace braid {

Attr::Attr() = default;
Attr::Attr(const Attr& other) = default;
Attr::Attr(Attr&& other) noexcept = default;
Attr& Attr::operator=(const Attr& other) = default;
Attr& Attr::operator=(Attr&& other) noexcept = default;
Attr::~Attr() = default;

Attr::Attr(std::int64_t value) : AttrValue_(value) {}
Attr::Attr(int value) : AttrValue_(static_cast<std::int64_t>(value)) {}
Attr::Attr(double value) : AttrValue_(value) {}
Attr::Attr(float value) : AttrValue_(static_cast<double>(value)) {}
Attr::Attr(bool value) : AttrValue_(value) {}
Attr::Attr(const char* value) : AttrValue_(std::string(value)) {}
Attr::Attr(std::string_view value) : AttrValue_(std::string(value)) {}
Attr::Attr(DType value) : AttrValue_(value) {}
Attr::Attr(std::string value) : AttrValue_(std::move(value)) {}
Attr::Attr(Shape value) : AttrValue_(std::move(value)) {}
Attr::Attr(Tensor value) : AttrValue_(std::move(value)) {}
Attr::Attr(std::vector<std::int64_t> value) : AttrValue_(std::move(value)) {}
Attr::Attr(std::vector<double> value) : AttrValue_(std::move(value)) {}
Attr::Attr(std::vector<bool> value) : AttrValue_(std::move(value)) {}
Attr::Attr(std::vector<std::string> value) : AttrValue_(std::move(value)) {}
Attr::Attr(std::vector<DType> value) : AttrValue_(std::move(value)) {}
Attr::Attr(std::vector<Shape> value) : AttrValue_(std::move(value)) {}

AttrMap::AttrMap() = default;
AttrMap::AttrMap(std::initializer_list<std::pair<const std::string, Attr>> items) : items_(items) {}
AttrMap::AttrMap(const AttrMap& other) = default;
AttrMap::AttrMap(AttrMap&& other) noexcept = default;
AttrMap& AttrMap::operator=(const AttrMap& other) = default;
AttrMap& AttrMap::operator=(AttrMap&& other) noexcept = default;
AttrMap::~AttrMap() = default;

bool AttrMap::has(std::string_view name) const { return items_.find(name) != items_.end(); }

void AttrMap::set(std::string name, Attr value) {
  items_.insert_or_assign(std::move(name), std::move(value));
}

const Attr* AttrMap::find(std::string_view name) const {
  const auto it = items_.find(name);
  return it == items_.end() ? nullptr : &it->second;
}

void throw_attr_missing(std::string_view name) {
  throw InvalidArgument("attribute '" + std::string(name) + "' is missing");
}

void throw_attr_type(std::string_view name) {
  throw InvalidArgument("attribute '" + std::string(name) + "' has another type than the op expects");
}

}  // namespace braid
