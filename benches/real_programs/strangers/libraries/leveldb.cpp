// libleveldb-dev: leveldb snappy; pthread
#include <iostream>
#include <leveldb/db.h>
#include <leveldb/write_batch.h>

int main() {
    leveldb::DB *db;
    leveldb::Options options;
    options.create_if_missing = true, options.write_buffer_size = 100000;
    leveldb::DestroyDB("strangers.leveldb", options);
    if (auto status = leveldb::DB::Open(options, "strangers.leveldb", &db); !status.ok()) return std::cout << status.ToString() << '\n', 1;
    leveldb::WriteBatch batch;
    for (int i = 0; i < 5000; i++) batch.Put("key" + std::to_string(i * 7919 % 5000), std::string(100, 'a' + i % 26));
    db->Write({}, &batch);
    db->CompactRange(nullptr, nullptr);
    std::string value;
    std::cout << db->Get({}, "key77", &value).ToString() << value << '\n' << db->Get({}, "none", &value).ToString() << '\n';
    auto *iterator = db->NewIterator({});
    int count = 0;
    for (iterator->Seek("key4"); iterator->Valid(); iterator->Next()) count++;
    std::cout << count << '\n';
    delete iterator;
    delete db;
    leveldb::DestroyDB("strangers.leveldb", options);
}
