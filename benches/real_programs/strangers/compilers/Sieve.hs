import Control.Concurrent
import Control.Exception
import qualified Data.Map as Map

primes :: [Integer]
primes = sieve [2 ..] where sieve (p : rest) = p : sieve [n | n <- rest, n `mod` p /= 0]

main :: IO ()
main = do
  print (take 30 primes)
  print (2 ^ (300 :: Int) `mod` (10 ^ (40 :: Int) + 7 :: Integer))
  done <- newEmptyMVar
  mapM_ (\n -> forkIO (putMVar done $! sum [1 .. n * 1000 :: Int])) [1 .. 4]
  results <- mapM (const (takeMVar done)) [1 .. 4 :: Int]
  print (sum results)
  result <- try (evaluate (1 `div` (0 :: Int))) :: IO (Either ArithException Int)
  print result
  print (Map.toList (Map.fromListWith (+) [(length word, 1 :: Int) | word <- words "the cat and the brown dog"]))
