// libcrypto++-dev: cryptopp; pthread
#include <crypto++/aes.h>
#include <crypto++/filters.h>
#include <crypto++/gcm.h>
#include <crypto++/hex.h>
#include <crypto++/integer.h>
#include <crypto++/nbtheory.h>
#include <crypto++/sha.h>
#include <crypto++/sha3.h>
#include <crypto++/whrlpool.h>
#include <iostream>

using namespace CryptoPP;

template <class Hash> void show(const char *text) {
    Hash hash;
    std::string hex;
    StringSource(text, true, new HashFilter(hash, new HexEncoder(new StringSink(hex))));
    std::cout << hex << '\n';
}

int main() {
    show<SHA3_256>("text"), show<SHA512>("text"), show<Whirlpool>("text");
    byte key[16] = {1, 2, 3}, iv[12] = {4};
    GCM<AES>::Encryption seal;
    seal.SetKeyWithIV(key, 16, iv, 12);
    std::string sealed, opened;
    StringSource("message", true, new AuthenticatedEncryptionFilter(seal, new HexEncoder(new StringSink(sealed))));
    std::cout << sealed << '\n' << a_exp_b_mod_c(Integer("123456789"), Integer("987654321987654321"), Integer::Power2(200) - 1) << '\n';
    try {
        GCM<AES>::Decryption open;
        open.SetKeyWithIV(key, 16, iv, 12);
        StringSource("wrong wrong wrong wrong", true, new AuthenticatedDecryptionFilter(open, new StringSink(opened)));
    } catch (const Exception &error) {
        std::cout << error.what() << '\n';
    }
}
