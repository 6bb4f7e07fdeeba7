// A protobuf message as a row of fields: the wire format, without any schema.
#pragma once

#include <cstdint>
#include <string_view>

#include "gradus/core/error.h"

namespace gradus::protobuf {

// Note [Protobuf wire format]
// A message is a row of fields. Each starts with a varint key: number << 3 | kind, where kind 0 is a varint, 1 eight
// bytes, 2 a varint length and as many bytes (text, a nested message or packed numbers), 5 four bytes. A varint holds
// seven bits a byte, the lowest first, the top bit says that another follows; negative numbers take ten bytes.
struct Field {
    std::uint64_t number = 0;
    std::uint64_t kind = 0;
    std::uint64_t integer = 0;  // kind 0
    std::string_view bytes;     // kinds 1, 2 and 5
};

class Message {
  public:
    explicit Message(std::string_view bytes) : rest_(bytes) {}

    bool next(Field& field) {
        if (rest_.empty()) return false;
        const std::uint64_t key = varint();
        field = {key >> 3, key & 7, 0, {}};
        switch (field.kind) {
            case 0:
                field.integer = varint();
                break;
            case 1:
                field.bytes = take(8);
                break;
            case 2:
                field.bytes = take(varint());
                break;
            case 5:
                field.bytes = take(4);
                break;
            default:
                fail("protobuf: field ", field.number, " has the unknown wire kind ", field.kind);
        }
        return true;
    }

    bool empty() const { return rest_.empty(); }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1).front());
            value |= static_cast<std::uint64_t>(byte & 127) << shift;
            if (byte < 128) return value;
        }
        fail("protobuf: a number of more than ten bytes");
    }

  private:
    std::string_view take(std::uint64_t count) {
        check(count <= rest_.size(), "protobuf: the file ends early: ", count, " bytes wanted, ", rest_.size(),
              " left");
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }

    std::string_view rest_;
};

}  // namespace gradus::protobuf
