// librocksdb-dev: rocksdb snappy lz4 zstd bz2 z; pthread dl
#include <iostream>
#include <rocksdb/db.h>
#include <rocksdb/utilities/transaction_db.h>

int main() {
    rocksdb::Options options;
    options.create_if_missing = true, options.write_buffer_size = 200000, options.compression = rocksdb::kZSTD;
    rocksdb::DestroyDB("strangers.rocksdb", options);
    rocksdb::TransactionDB *db;
    if (auto status = rocksdb::TransactionDB::Open(options, {}, "strangers.rocksdb", &db); !status.ok()) return std::cout << status.ToString() << '\n', 1;
    for (int i = 0; i < 8000; i++) db->Put({}, "key" + std::to_string(i * 7919 % 8000), std::string(100, 'a' + i % 26));
    db->Flush({});
    db->CompactRange({}, nullptr, nullptr);
    std::unique_ptr<rocksdb::Transaction> transaction(db->BeginTransaction({}));
    transaction->Put("key77", "changed");
    std::string value;
    std::cout << db->Get({}, "key77", &value).ToString() << value << '\n';
    transaction->Commit();
    std::cout << db->Get({}, "key77", &value).ToString() << value << '\n' << db->Get({}, "none", &value).ToString() << '\n';
    transaction.reset();
    delete db;
    rocksdb::DestroyDB("strangers.rocksdb", options);
}
